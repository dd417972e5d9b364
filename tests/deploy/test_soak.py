"""benchmarks/soak.py reads the status line of `bot deploy`, and its tables count by load."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from body_transformer.cli.deploy_terminal import NO_WRAP, WRAP, status_line
from body_transformer.deploy.runtime_config import Phase


@pytest.fixture
def soak(benchmark_script, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return benchmark_script("soak")


@pytest.mark.parametrize("stop", [None, "late loop: 3 in the last tick"])
@pytest.mark.parametrize("trip_s", [0.002, float("nan")])
def test_the_status_line_is_read(soak, stop, trip_s):
    interventions = SimpleNamespace(stop=stop, total=20)
    controller = SimpleNamespace(phase=Phase.POLICY, interventions=interventions, age_s=0.0012)
    robot = SimpleNamespace(round_trip_s=trip_s)
    log = SimpleNamespace(num_ticks=6100)
    runtime = SimpleNamespace(controller=controller, elapsed_s=61.5, robot=robot, log=log, work_s=0.0004, missed=12)
    found = soak.STATUS.search(f"\x1b[K{NO_WRAP}{status_line(runtime)}{WRAP}").groupdict()
    stopped = f"  {stop} " if stop else ""
    assert found == {"phase": "policy", "at_s": "61.5", "stop": stopped.rstrip(), "missed": "12", "acts": "20"}


def test_missed_deadlines_and_stops_are_counted_by_load(soak, tmp_path):
    def sample(time_s, phase, run, missed, acts):
        usage = {f"{name}_{key}": 7 for name in ("controller", "robot") for key in ("rss_mb", "threads", "fds")}
        return {"time_s": time_s, "phase": phase, "run": run, "others": 0.5, **usage} | {
            "status": {"missed": str(missed), "acts": str(acts)}
        }

    samples = [sample(0, "idle", 0, 1, 2), sample(1, "idle", 0, 3, 9), sample(2, "busy", 0, 4, 9)]
    samples += [sample(3, "busy", 1, 5, 5)]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
    run = {"begun_s": 2.1, "log": str(tmp_path / "none"), "status": 1, "stop": "late loop: 1 in the last tick"}
    (tmp_path / "runs.json").write_text(json.dumps([run]))
    rows = [line.split(" | ") for line in soak.soak_tables.tables(tmp_path).splitlines()]
    assert rows[2][:6] == ["| idle", "0.0", "0.50", "3", "9", "none"]
    assert rows[3][:6] == ["| busy", "0.0", "0.50", "6", "5", "late loop 1"]
