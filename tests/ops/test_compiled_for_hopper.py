"""The fused kernels as machine code: what the interpreter cannot see."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).parent / "compile_for_hopper.py"
SHARED = 227 * 1024  # bytes that a program may use on an H200
CASES = ["bf16 16 64 128 2", "bf16 40 64 128 2", "bf16 50 32 100 2", "tf32 16 64 128 2"]


@pytest.mark.parametrize("case", CASES)
def test_the_machine_code_fits_waits_for_its_weights_and_reads_no_register_that_nothing_wrote(case: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(SCRIPT), *case.split()]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    kernels = [json.loads(line) for line in run.stdout.splitlines()]
    assert [kernel["kernel"] for kernel in kernels] == ["inference", "forward", "backward", "weights", "feed-forward"]
    for kernel in kernels:
        assert kernel["unfenced"] == 0
        assert kernel["uninitialised"] == []
        assert kernel["shared"] <= SHARED
