"""Run `bot …` under `torchrun`; then each process writes the names of the gloo threads that are still running.

torchrun --nproc-per-node 2 tests/training/threads_left.py FOLDER train …
"""

import os
import sys
from pathlib import Path

from body_transformer.cli.main import main

if __name__ == "__main__":
    folder, *arguments = sys.argv[1:]
    code = main(arguments)
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    (Path(folder) / f"threads{os.environ['RANK']}.txt").write_text("".join(name for name in names if "gloo" in name))
    sys.exit(code)
