"""Find and read deployments, and compute their derived quantities."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from body_transformer.deploy.runtime_config import Phase
from body_transformer.deploy.saved_log import SavedLog
from body_transformer.report.deployment import Deployment, read_deployments
from body_transformer.report.load import find_folders
from body_transformer.report.page import write_report

from ..deploy.virtual_robot import SinePolicy
from .deployment_folders import deploy, describe, make, rows_of, tilting
from .run_folders import write_run


def read(folder: Path) -> Deployment:
    return read_deployments([folder])[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs that the tests only read."""
    root = tmp_path_factory.mktemp("deployments") / "logs"
    deploy(root.with_name("short"), seconds=0.1)
    deploy(root / "with")
    deploy(root / "without", without_filter=True)
    deploy(root / "tilted", fault=tilting)
    return root


# -- finding -----------------------------------------------------------------------------------------------------------


def test_deployments_are_found_by_name_and_below_each_once(place: Path) -> None:
    names = ["tilted", "with", "without"]
    assert [folder.name for folder in find_folders([place])[1]] == names
    assert [folder.name for folder in find_folders([place / "without", place])[1]] == ["without", "tilted", "with"]


def test_logs_inside_a_run_belong_to_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, film=None, checkpoint=False)
    deploy(run / "tried")
    assert find_folders([tmp_path]) == ([run], [])
    assert len(write_report(tmp_path / "page.html", [tmp_path]).runs) == 1
    assert find_folders([run / "tried"]) == ([], [run / "tried"])


def test_labels_are_as_long_as_needed_to_be_unique(tmp_path: Path) -> None:
    folders = [deploy(tmp_path / name, seconds=0.1) for name in ("a/log", "b/log", "b/other")]
    assert [one.label for one in read_deployments(folders)] == ["a/log", "b/log", "other"]


# -- broken logs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(place: Path, tmp_path: Path) -> Path:
    """A log of a tenth of a second that a test may change."""
    return Path(shutil.copytree(place.with_name("short"), tmp_path / "log"))


@pytest.mark.parametrize("missing", ["log.json", "log.npz"])
def test_an_incomplete_log_is_refused(log: Path, missing: str) -> None:
    (log / missing).unlink()
    with pytest.raises(FileNotFoundError, match=f"{missing} is missing"):
        write_report(log.parent / "page.html", [log])


def limits(**changes: object) -> dict[str, object]:
    return {"position": [[-1, 1]] * 12, "velocity": [1.0] * 12, "torque": [1.0] * 12} | changes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limits": {}}, "limits: missing keys: 'position', 'velocity', 'torque'"),
        ({"limits": limits(torque=[1.0] * 11 + [float("nan")])}, r"limits.torque\[11\] must be a finite number"),
        ({"limits": limits(torque=[1.0] * 11)}, "limits.torque must have 12 entries, one per joint; got 11"),
        ({"loop_hz": 0}, "loop_hz must be above 0"),
        ({"policy_hz": "fast"}, "policy_hz must be a finite number"),
        ({"phases": ["wait"]}, "phase is from 0 to 5; phases has 1 names"),
        ({"stop": "tilted"}, "stop must be a mapping"),
        ({"interventions": {"boredom": 3}}, "interventions has keys that are not reasons: 'boredom'"),
        ({"events": [{"time_s": 0.1}]}, r"events\[0\]: missing keys: 'tick', 'kind', 'text'"),
        ({"safety": {"stale_ms": 0}}, "safety: stale_ms must be above 0"),
        ({"filter": {"cutoff_hz": None}}, "filter: missing key: 'order'"),
        ({"command": "go"}, "command must be a list"),
        ({"joints": 12}, "joints must be a list; got 12"),
        ({"robot_joints": [3]}, r"robot_joints\[0\] must be a string"),
        ({"format": "diary"}, "does not describe a log"),
        ({"version": 2}, "has version 2"),
        ({"kept_ticks": 7}, "tick is not int64"),
    ],
)
def test_an_unusable_description_is_refused_with_the_reason(log: Path, change: dict[str, object], message: str) -> None:
    describe(log, change)
    with pytest.raises(ValueError, match=message):
        write_report(log.parent / "page.html", [log])
    assert not (log.parent / "page.html").exists()


@pytest.mark.parametrize("name", ["log.json", "log.npz"])
def test_a_corrupted_log_is_read_or_refused_with_a_clear_error(log: Path, name: str) -> None:
    whole, rng = (log / name).read_bytes(), np.random.default_rng(0)
    refused = []
    for k in range(150):
        broken = bytearray(whole if k % 3 else whole[: rng.integers(len(whole))])
        for at in rng.integers(len(broken), size=4) if broken else ():
            broken[at] = rng.integers(256)
        (log / name).write_bytes(broken)
        try:
            read(log)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all(str(log) in message for message in refused)


def test_nothing_is_unpickled(log: Path) -> None:
    np.savez(log / "log.npz", **rows_of(log) | {"tick": np.array([{}], object)})
    describe(log, {"arrays_sha256": sha256((log / "log.npz").read_bytes()).hexdigest()})
    with pytest.raises(ValueError, match="is damaged: Object arrays cannot be loaded"):
        read(log)


# -- derived quantities ------------------------------------------------------------------------------------------------


def test_time_and_phases_match_the_events_of_the_loop(place: Path) -> None:
    one = read(place / "with")
    assert [span.phase for span in one.spans] == ["wait", "ramp", "hold", "policy", "damping"]
    events = {event.text: event.time_s for event in one.facts.events}
    for span in one.spans[1:]:
        assert span.start_s == pytest.approx(events[span.phase], abs=1e-6)
    policy = next(span for span in one.spans if span.phase == "policy")
    assert policy.end_s - policy.start_s == pytest.approx(3.0)
    assert (one.stop, one.stop_s) == ("", None)


def test_a_stop_has_its_reason_and_its_time(place: Path) -> None:
    one = read(place / "tilted")
    assert one.stop.startswith("tilted: 1.0")
    assert one.stop_s == pytest.approx(2.52, abs=0.03)
    assert one.tilt_rad.max() == pytest.approx(SavedLog.load(place / "tilted").rows["now_s"][-1] - 1000 - 1.5, abs=0.02)


def test_roughness_is_the_second_difference_of_the_targets_in_rad_per_second_squared(place: Path) -> None:
    one, rows = read(place / "without"), rows_of(place / "without")
    targets = rows["target"][rows["phase"] == Phase.POLICY]
    bends = np.diff(targets, n=2, axis=0) * 50**2
    np.testing.assert_allclose(one.roughness(one.targets), np.sqrt((bends**2).mean(axis=0)), rtol=1e-9)


@pytest.mark.parametrize("loop_hz", [50.0, 200.0])
def test_roughness_of_a_known_motion_does_not_depend_on_the_rate_of_commands(tmp_path: Path, loop_hz: float) -> None:
    class Parabola(SinePolicy):
        def __call__(self, obs: np.ndarray) -> np.ndarray:
            self.calls += 1
            return np.full(12, 0.5 * (self.calls / 50) ** 2, np.float32)  # 1 rad/s² of actions, which count half

    one = read(deploy(tmp_path, True, policy=Parabola(), loop_hz=loop_hz, seconds=1.2))
    for positions in (one.targets, one.commanded):
        np.testing.assert_allclose(one.roughness(positions), 0.5, rtol=0.01)


def test_the_filter_makes_commanded_positions_smoother_than_the_policys_targets(place: Path, tmp_path: Path) -> None:
    class Restless(SinePolicy):
        def __call__(self, obs: np.ndarray) -> np.ndarray:
            self.calls += 1
            return np.full(12, 0.05 * (-1) ** self.calls, np.float32)

    filtered, plain = (
        read(deploy(tmp_path / str(without), without, policy=Restless(), seconds=1.0)) for without in (False, True)
    )
    assert (filtered.roughness(filtered.commanded) < 0.3 * filtered.roughness(filtered.targets)).all()
    np.testing.assert_allclose(plain.roughness(plain.commanded), plain.roughness(plain.targets), rtol=1e-6)


def test_roughness_and_timing_need_three_steps_of_the_policy(tmp_path: Path) -> None:
    one = read(deploy(tmp_path, fault=lambda state, seconds: [] if seconds > 0.2 else [state]))
    assert one.stop.startswith("state lost")
    assert (one.roughness(one.targets), one.facts.work_ms) == (None, {})


def test_ticks_without_a_state_have_no_measurement_and_damping_has_no_target(tmp_path: Path) -> None:
    one = read(deploy(tmp_path, fault=lambda state, seconds: [] if 1.0 < seconds < 1.05 else [state]))
    none = one.log.rows["state"] == 0
    assert none.any()
    assert (np.isnan(one.measured("joint_pos")).all(axis=1) == none).all()
    moving = one.during("ramp", "hold", "policy")
    for positions in (one.targets, one.commanded):
        assert (np.isfinite(positions).all(axis=1) == moving).all()


def test_a_policy_that_commands_torques_has_no_position_targets_while_it_runs(tmp_path: Path) -> None:
    from ..deploy.virtual_robot import a1_contract

    contract = a1_contract(kind="torque", scale=(5.0,) * 12, offset=(0.0,) * 12)
    one = read(deploy(tmp_path, contract=contract, seconds=0.5))
    walking = one.during("policy")
    assert np.isnan(one.targets[walking]).all()
    assert one.commanded_torque is not None
    assert np.nanmax(np.abs(one.commanded_torque)) > 1
    assert one.roughness(one.targets) is None


def test_commands_that_the_robot_changed_are_counted(tmp_path: Path) -> None:
    runtime, robot = make(seconds=0.5)
    send, sent = robot.send, []

    def held_back(command):
        sent.append(command)
        really = send(command)
        if 40 <= len(sent) < 47:
            really.position[0] += 0.01
        return really

    robot.send = held_back
    runtime.run()
    assert read(runtime.save_log(tmp_path)).num_changed_commands == 7
    assert json.loads((tmp_path / "log.json").read_text())["stop"] is None
