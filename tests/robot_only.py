"""Check a robot's computer: the package without its dependencies, NumPy and ONNX Runtime.

`make robot` runs this in such an environment; the argument is an exported A1 policy.
"""

import contextlib
import io
import json
import sys
import tempfile
import types
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

ABSENT = ("torch", "mujoco", "yaml", "tyro", "rich", "safetensors", "matplotlib", "PIL", "accelerate", "onnx", "pytest")
ATTEMPTS, TOO_SLOW = 8, ("late loop", "state lost")
"""Stops that do not fail this check: a busy computer may pause for longer than a robot allows."""
DEFAULT_POSE = (-0.1, 0.8, -1.5, 0.1, 0.8, -1.5, -0.1, 1.0, -1.5, 0.1, 1.0, -1.5)


def check_only_what_a_robot_needs_is_installed() -> None:
    found = [name for name in ABSENT if find_spec(name)]
    assert not found, f"this environment has packages that a robot's computer lacks: {found}"


def check_a_policy_is_loaded_and_agrees(folder: Path) -> None:
    from body_transformer.deploy.policy import OnnxPolicy

    assert OnnxPolicy(folder).verify() <= 1e-5


def check_it_runs_on_an_a1(folder: Path, logs: Path) -> None:
    """Run `bot deploy` with a stand-in for Unitree's module, again if a busy computer was too slow."""
    from body_transformer.cli.main import main

    sys.modules["robot_interface"] = robot_interface()
    patient = ["--loop-hz", "100", "--stale-ms", "1000"]
    where = ["--robot", "a1", "--seconds", "0.5", "--json"]
    for attempt in range(ATTEMPTS):
        out, log = io.StringIO(), logs / str(attempt)
        with contextlib.redirect_stdout(out):
            status = main(["deploy", str(folder), *where, *patient, "--out", str(log)])
        said = json.loads(out.getvalue())
        if not (said["stop"] or "").startswith(TOO_SLOW):
            break
    assert status == 0, said["stop"]
    assert 0 < said["policy_seconds"] <= 0.5  # missed ticks do not count
    with contextlib.redirect_stdout(out):
        assert main(["deploy", str(folder), "--replay", str(log)]) == 0


def check_every_other_command_is_refused_in_one_line(folder: Path) -> None:
    """Run every other command, and the simulated robot, which need packages that are not installed."""
    from body_transformer.cli.main import VERBS, main

    asked = [[verb] for verb in VERBS if verb != "deploy"] + [["deploy", str(folder), "--robot", "sim"]]
    for args in asked:
        words = io.StringIO()
        with contextlib.redirect_stderr(words):
            assert main(args) == 1, args
        said = [line for line in words.getvalue().splitlines() if "no key stops this run" not in line]
        assert len(said) == 1, said
        assert "is not installed" in said[0] or "did not start" in said[0], said


def robot_interface() -> types.ModuleType:
    """Return the tests' stand-in for Unitree's module, with joints that go where they are sent."""
    spec = spec_from_file_location("robot_interface", Path(__file__).parent / "deploy/fake_robot_interface.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.machine = module.Servos(DEFAULT_POSE, period_ms=10)
    return module


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        checks = [
            check_only_what_a_robot_needs_is_installed,
            lambda: check_a_policy_is_loaded_and_agrees(folder),
            lambda: check_it_runs_on_an_a1(folder, Path(name)),
            lambda: check_every_other_command_is_refused_in_one_line(folder),
        ]
        for check in checks:
            check()
    loaded = {module.split(".")[0] for module in sys.modules}
    assert loaded.isdisjoint(ABSENT), loaded & set(ABSENT)
    print(f"robot only, Python {sys.version.split()[0]}: {len(checks)} passed, 0 failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
