"""Read many changed inputs with the package's readers, and write the figures.

    python benchmarks/fuzz.py --reader npz --inputs 20000 --seed 0
    python benchmarks/fuzz.py --reader npz --input 137 --keep folder      # one input: print its outcome, keep its files

Each input ends as a success or as one sentence; anything else is a fault, and the exit status is 1. Figures are kept
per reader in OUT/results.json, from which OUT/README.md is written. Without --reader, all readers run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the harness is a part of the tests

from tests.fuzz.harness import Harness, Tally  # noqa: E402
from tests.fuzz.readers import READERS  # noqa: E402
from tests.fuzz.sandbox import MAX_BYTES, TIMEOUT_S  # noqa: E402

from body_transformer.bench.results import device_name  # noqa: E402
from body_transformer.files import atomic_write, try_lock  # noqa: E402
from body_transformer.run import git_commit  # noqa: E402

PART = 1000
"""Inputs between two lines of progress."""
COLUMNS = ("reader", "inputs", "successes", "refusals", "faults", "mean_ms", "slowest_s", "peak_mib", "commit", "date")
TITLE = f"""# Hostile files and datagrams

Every input is a valid one of the reader with random changes: other keys, types, sizes, names and numbers, cut, spliced
and flipped bytes, links to other files. A success or a refusal in one sentence is expected; everything else is a fault:
another exception, a message with control characters, more than {TIMEOUT_S:.0f} s of the processor,
more than {MAX_BYTES // 2**20} MiB of memory beside the program's, a file opened outside the input's folder, a process,
a connection, unpickled or executed data.

`slowest_s` includes waiting for a busy processor. `peak_mib` is the largest growth of the reading process, or the size
of the process that reads robot files.

    python benchmarks/fuzz.py --reader NAME --inputs 20000 --seed 0

"""


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", action="append", choices=list(READERS), help="a reader; by default all")
    parser.add_argument("--inputs", type=int, default=20_000, help="number of inputs per reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--input", type=int, help="read only the input of this number, and print its outcome")
    parser.add_argument("--keep", default="", help="folder that gets the files of the last input")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz")
    options = parser.parse_args()
    failed = False
    for name in options.reader or READERS:
        with Harness() as harness:
            if options.input is not None:
                tally = harness.run(name, 1, options.seed, options.input, str(Path(options.keep).absolute()))
                print(dict(tally.counts), *tally.faults.values())
            else:
                began = time.perf_counter()
                tally = run(harness, name, options.inputs, options.seed)
                keep(options.out, result(tally, options, time.perf_counter() - began))
        failed |= bool(tally.faults)
    return int(failed)


def run(harness: Harness, name: str, num_inputs: int, seed: int) -> Tally:
    """Read the inputs of a reader, with a line of progress per part."""
    whole = Tally(name)
    for start in range(0, num_inputs, PART):
        tally = harness.run(name, min(PART, num_inputs - start), seed, start)
        whole.merge(tally)
        print(f"{name}: {whole.counts.total()} inputs, {dict(whole.counts)}", flush=True)
        for number, text in tally.faults.items():
            print(f"  input {number}: {text[:1000]}", flush=True)
    return whole


def result(tally: Tally, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Return the figures of a reader."""
    number = tally.counts.total()
    return {
        "reader": tally.reader,
        "inputs": number,
        "seed": options.seed,
        "successes": tally.counts["success"],
        "refusals": tally.counts["refusal"],
        "faults": len(tally.faults),
        "mean_ms": round(1000 * seconds / number, 1),
        "slowest_s": round(tally.slowest_s, 2),
        "slowest_input": tally.slowest,
        "peak_mib": round(tally.peak_bytes / 2**20),
        "commit": (git_commit() or "")[:7] + ("-dirty" if (git_commit() or "").endswith("-dirty") else ""),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": device_name("cpu"),
    }


def keep(out: Path, row: dict[str, Any]) -> None:
    """Replace the reader's row in the results, and write the table."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        while not try_lock(lock):
            time.sleep(0.1)
        file = out / "results.json"
        rows = json.loads(file.read_text()) if file.is_file() else {}
        rows[row["reader"]] = row
        rows = {name: rows[name] for name in READERS if name in rows}
        atomic_write(file, json.dumps(rows, indent=1) + "\n")
        lines = [f"| {' | '.join(str(found[column]) for column in COLUMNS)} |" for found in rows.values()]
        head = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
        machines = sorted({found["machine"] for found in rows.values()})
        table = "\n".join([*head, *lines])
        atomic_write(out / "README.md", f"{TITLE}Machine: {', '.join(machines)}, with other work on it.\n\n{table}\n")
    (out / ".lock").unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
