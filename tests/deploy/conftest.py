import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from body_transformer import Policy
from body_transformer.deploy.link import FROM_CONTROLLER, FROM_ROBOT, Link
from body_transformer.experiment import load_experiment
from body_transformer.run import Run

from . import fake_robot_interface as fake
from .datagrams import JOINTS, KEY, NONCE, SESSION, udp

SMALL = {"embed_dim": 8, "num_layers": 2, "num_heads": 2, "ff_dim": 16, "mlp_dim": 12}


def make_policy(experiment: str = "a1-walk", variant: str | None = None, **changes: Any) -> Policy:
    """Return an experiment's policy with few and narrow layers, and with statistics of observations."""
    torch.manual_seed(0)
    known = load_experiment(experiment)
    policy = Policy(known.layout(), replace(known.policy_config(variant), **SMALL | changes))
    policy.normalizer.set_statistics(torch.randn(policy.obs_dim), torch.rand(policy.obs_dim) + 0.5)
    return policy


def make_run(folder: Path, policy: Policy, experiment: str = "a1-walk", **changes: Any) -> Path:
    """Write a run folder with the parts that an export reads."""
    about = {
        "name": experiment,
        "title": "A test",
        "variant": policy.config.variant,
        "seed": 4,
        "command": f"bot train {experiment} --seed 4 --out somewhere/else",
        "date": "2025-01-02 03:04 UTC",
    }
    Run.create(folder, about | {"rl": {"task": experiment, "num_envs": 64, "num_steps": 10}} | changes)
    policy.save(folder / "checkpoints" / "3")
    return folder


@pytest.fixture(scope="session")
def policy() -> Policy:
    return make_policy()


@pytest.fixture(scope="session")
def folder(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export of a1-walk that tests must not change."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from body_transformer.deploy.export import export, find_trained

    place = tmp_path_factory.mktemp("exported")
    return export(find_trained(make_run(place / "run", policy)), place / "robot").folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the export that a test may change."""
    import shutil

    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def servos(monkeypatch: pytest.MonkeyPatch) -> fake.Servos:
    """Return the A1 behind a stand-in for Unitree's module."""
    machine = fake.Servos([0.0, 1.0, -1.8] * 4)
    monkeypatch.setattr(fake, "machine", machine)
    monkeypatch.setitem(sys.modules, "robot_interface", fake)
    return machine


@pytest.fixture
def terminal(monkeypatch):
    """Yield a keyboard: bytes written to it are typed."""
    import pty

    near, far = pty.openpty()
    keyboard = os.fdopen(far)
    monkeypatch.setattr(sys, "stdin", keyboard)
    yield os.fdopen(near, "wb", buffering=0)
    keyboard.close()


@pytest.fixture
def ends():
    """Yield the robot's and the controller's end of a link, in one session."""
    robot, controller = Link(udp(), FROM_CONTROLLER, KEY), Link(udp(), FROM_ROBOT, KEY)
    robot.open(controller.address, SESSION, NONCE, JOINTS)
    controller.open(robot.address, SESSION, NONCE, JOINTS)
    yield robot, controller
    robot.close()
    controller.close()
