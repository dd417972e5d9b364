"""Check the core package by itself: `make core` runs this in an environment with its dependencies and nothing else."""

import contextlib
import io
import json
import pkgutil
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

EXTRAS = ("gymnasium", "gymnasium_robotics", "minari", "dm_control", "h5py", "mjlab", "onnx", "pytest")


WITHOUT = {
    "body_transformer.imitation.tasks.mocap.": ("dm_control", "scipy"),
    "body_transformer.ops.": ("triton",),
    "body_transformer.rl.": ("mjlab", "mjlab.envs", "rsl_rl", "tensordict", "warp"),
}
"""Parts of the package that need an extra, and the packages of that extra."""


def bot(*args: str) -> str:
    from body_transformer.cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(list(args))
    assert status == 0, f"bot {' '.join(args)}: exit status {status}"
    return out.getvalue()


def check_only_the_core_is_installed() -> None:
    found = [name for name in EXTRAS if find_spec(name)]
    assert not found, f"this environment has packages of the extras: {found}"


def check_every_module_imports() -> None:
    import body_transformer

    assert "site-packages" in body_transformer.__file__, f"the source tree was imported: {body_transformer.__file__}"
    for module in pkgutil.walk_packages(body_transformer.__path__, "body_transformer."):
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            if not any(module.name.startswith(part) and error.name in names for part, names in WITHOUT.items()):
                raise
        except ValueError as error:  # dm_control's task names the extra that it needs
            if "pip install 'body-transformer[imitation]'" not in str(error):
                raise


def check_every_experiment_can_be_inspected() -> None:
    for name in json.loads(bot("list", "--json"))["experiments"]:
        assert json.loads(bot("inspect", name, "--json"))["parameters"] > 0


def check_a_missing_extra_is_named() -> None:
    from body_transformer.cli.main import main

    words = io.StringIO()
    with contextlib.redirect_stderr(words):
        assert main(["train", "humanoid-mod"]) == 1
    assert "pip install 'body-transformer[rl]'" in words.getvalue()


def check_pictures_are_drawn(folder: Path) -> None:
    bot("inspect", "humanoid", "--out", str(folder))
    assert sorted(file.name for file in folder.iterdir()) == ["body.png", "mask.png"]


def check_a_policy_runs_and_is_stored(folder: Path) -> None:
    import torch

    from body_transformer import BodyGraph, Layout, Policy, PolicyConfig, robots

    layout = Layout.proprioceptive(BodyGraph.from_file(robots.path("a1")))
    policy = Policy(layout, PolicyConfig(variant="bot-hard", num_layers=2))
    obs = torch.randn(3, layout.obs_dim)
    policy.save(folder)
    assert torch.equal(Policy.load(folder)(obs), policy(obs))


def check_a_robot_is_trained_on_arrays(folder: Path) -> None:
    import numpy as np

    rows = np.random.default_rng(0).standard_normal((40, 12))
    np.savez(folder / "demos.npz", joint_pos=rows, actions=rows, episode_ends=[40])
    small = ("--imitation.num-steps", "2", "--policy.num-layers", "1", "--cpu", "--quiet")
    bot("train", "--robot", "a1", "--data", str(folder / "demos.npz"), *small, "--out", str(folder / "run"))
    bot("new", "a1", "--data", str(folder / "demos.npz"), "--out", str(folder / "mine.yaml"))


def check_the_demo_runs(folder: Path) -> None:
    few = ("--steps", "4", "--episodes", "2")
    found = json.loads(bot("demo", *few, "--out", str(folder), "--json"))
    assert list(found["runs"]) == ["bot-hard", "mlp", "transformer", "mlp, equal time"]
    assert Path(found["report"]).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        checks = [
            check_only_the_core_is_installed,
            check_every_module_imports,
            check_every_experiment_can_be_inspected,
            check_a_missing_extra_is_named,
            lambda: check_pictures_are_drawn(Path(name, "pictures")),
            lambda: check_a_policy_runs_and_is_stored(Path(name, "policy")),
            lambda: check_a_robot_is_trained_on_arrays(Path(name)),
            lambda: check_the_demo_runs(Path(name, "demo")),
        ]
        for check in checks:
            check()
    print(f"core only, Python {sys.version.split()[0]}: {len(checks)} passed, 0 failed")


if __name__ == "__main__":
    main()
