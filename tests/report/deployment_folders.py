"""Deployments to report on: logs of a robot in virtual time, and of the simulated robot over UDP."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from body_transformer.deploy.log import Log
from body_transformer.deploy.observation import JointOrder
from body_transformer.deploy.runtime import Runtime
from body_transformer.deploy.runtime_config import Phase
from body_transformer.deploy.saved_log import SavedLog

from ..deploy.virtual_robot import JOINTS, ROBOT_JOINTS, VirtualRobot, a1_contract, virtual_run


def deploy(folder: Path, without_filter: bool = False, more: dict[str, Any] | None = None, **options: Any) -> Path:
    """Write the log of a run in virtual time; `more` goes into its description."""
    runtime, _ = make(without_filter, **options)
    runtime.run()
    runtime.save_log(folder)
    describe(folder, more or {})
    return folder


def make(without_filter: bool = False, **options: Any) -> tuple[Runtime, VirtualRobot]:
    contract = a1_contract(filter=None) if without_filter else a1_contract()
    return virtual_run(**{"contract": contract, **options})


def describe(folder: Path, changes: dict[str, Any]) -> None:
    file = folder / "log.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def tilting(state, seconds):
    """Tilt the body more and more."""
    angle = max(seconds - 1.5, 0.0)
    return [replace(state, quaternion=np.array([np.cos(angle / 2), np.sin(angle / 2), 0.0, 0.0]))]


def rows_of(folder: Path) -> dict[str, Any]:
    return SavedLog.load(folder).rows


def ten_minutes(folder: Path, template: Path) -> tuple[Path, int]:
    """Write 120,000 noisy ticks at 200 Hz; return the folder and the tick with an outlier."""
    count, spike = 120_000, 77_777
    log = Log(count, JointOrder(JOINTS, ROBOT_JOINTS), 1)
    arrays, rng = log.arrays, np.random.default_rng(0)
    arrays["tick"][:] = np.arange(count)
    arrays["phase"][:] = Phase.POLICY
    arrays["state"][:] = 1
    arrays["quaternion"][:, 0] = 1
    arrays["command"][:, 2] = 100
    arrays["sent"][:] = np.nan
    for name in ("joint_pos", "target", "joint_torque"):
        arrays[name][:] = np.sin(np.arange(count) / 37)[:, None] + 0.1 * rng.standard_normal((count, 12))
    arrays["command"][:, 0] = arrays["target"]
    arrays["angular_velocity"][:] = rng.standard_normal((count, 3))
    for name in ("work_ms", "late_ms", "age_ms"):
        arrays[name][:] = rng.exponential(size=count)
    arrays["interventions"][::50] = 4
    arrays["joint_pos"][spike, 4] = 3.25
    numbers = {"num_ticks": count, "kept_ticks": count, "loop_hz": 200.0, "policy_seconds": 600.0}
    numbers |= {"interventions": {"torque limit": 2400}, "events": ()}
    return SavedLog(arrays, replace(SavedLog.load(template).description, **numbers)).save(folder), spike


def exported(place: Path) -> Path:
    """Export a small untrained policy of a1-walk."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from body_transformer.deploy.export import export, find_trained

    from ..deploy.conftest import make_policy, make_run

    return export(find_trained(make_run(place / "run", make_policy())), place / "policy").folder
