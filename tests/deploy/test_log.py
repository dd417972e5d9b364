"""The log of a run, and its replay."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from body_transformer.deploy.log import BAD_SHAPE, num_bytes
from body_transformer.deploy.replay import replay
from body_transformer.deploy.robot import Command
from body_transformer.deploy.runtime_config import Phase
from body_transformer.deploy.safety import Reason
from body_transformer.deploy.saved_log import SavedLog
from body_transformer.files import atomic_write
from body_transformer.report.deployment import read_deployments

from .virtual_robot import DEFAULT_POSE, JOINTS, ROBOT_JOINTS, SinePolicy, a1_contract, virtual_run


class PurePolicy:
    """A policy whose action depends on the observation alone, as a network's does."""

    def __init__(self) -> None:
        self._weights = np.random.default_rng(0).normal(size=(48, 12)).astype(np.float32) * 0.2

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return np.tanh(obs @ self._weights + np.float32(0.3))


def faulty(state, seconds):
    """Lose, delay and damage some states."""
    k = state.sequence
    if k % 17 == 0:
        return []
    if k % 31 == 0:
        return [replace(state, joint_pos=state.joint_pos * np.nan)]
    if k % 37 == 0:
        return [replace(state, joint_pos=state.joint_pos[:3])]
    if k % 7 == 0:
        return [replace(state, received_s=state.received_s + 0.013)]
    noise = np.random.default_rng(k).normal(size=12) * 0.02
    return [replace(state, joint_pos=state.joint_pos + noise, joint_vel=state.joint_vel + 10 * noise)]


def recorded(folder, fault=None, **options):
    """Run and save the log; return the runtime and the log's folder."""
    runtime, _ = virtual_run(fault, **{"policy": PurePolicy(), **options})
    runtime.run()
    return runtime, runtime.save_log(folder)


def replayed(runtime, folder):
    return replay(runtime.save_log(folder), runtime.contract, PurePolicy())


SHORT = {"seconds": 0.1, "ramp_s": 0.1, "hold_s": 0.1}


def test_the_log_is_in_the_contracts_order_and_describes_the_run(tmp_path):
    log = SavedLog.load(recorded(tmp_path / "a" / "log")[1])
    assert (log.description.joints, log.description.robot_joints) == (JOINTS, ROBOT_JOINTS)
    held = log.rows["phase"] == Phase.HOLD
    np.testing.assert_allclose(log.rows["joint_pos"][held][-1], DEFAULT_POSE, atol=0.01)
    np.testing.assert_array_equal(log.rows["command"], log.rows["sent"])
    assert log.description.stop is None
    assert log.description.interventions == {}
    assert [event.text for event in log.description.events] == ["ramp", "hold", "policy", "damping", "done"]
    assert log.description.limits.torque == (33.5,) * 12
    assert len(log.rows["obs"][0]) == 48


def test_interventions_are_in_the_log_with_their_reason_and_tick(tmp_path):
    log = SavedLog.load(recorded(tmp_path, faulty)[1])
    counts = log.description.interventions
    assert counts["state not finite"] > 5
    assert counts["state shape"] > 5
    bit = log.description.reasons.index("state not finite")
    marked = log.rows["interventions"] >> bit & 1
    assert marked.sum() == counts["state not finite"]
    seen = log.rows["state"] == 1
    np.testing.assert_array_equal(marked.astype(bool), seen & np.isnan(log.rows["joint_pos"]).any(axis=1))
    assert (log.rows["state"] == BAD_SHAPE).sum() == counts["state shape"]


def test_states_are_read_from_a_log_bit_for_bit_in_the_robots_order(tmp_path):
    runtime, robot = virtual_run()
    given, read = [], robot.read

    def listening():
        given.append(read())
        return given[-1]

    robot.read = listening
    runtime.run()
    back = list(SavedLog.load(runtime.save_log(tmp_path)).states())
    assert len(back) == len(given)
    for one, other in zip(back, given, strict=True):
        assert (one.sequence, one.stamp_s, one.received_s) == (other.sequence, other.stamp_s, other.received_s)
        np.testing.assert_array_equal(np.concatenate(one.parts), np.concatenate(other.parts))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loop_hz": 200.0, "robot": {"hz": 500.0}},
        {"dry_run": True},
        {"command": (0.3, 0.0, 0.1)},
        {"filter": False},
    ],
    ids=["50 Hz", "200 Hz", "dry run", "another command", "no filter"],
)
def test_a_log_that_is_replayed_gives_the_same_commands_bit_for_bit(tmp_path, options):
    runtime, folder = recorded(tmp_path, faulty, **options)
    again = replay(folder, runtime.contract, PurePolicy())
    assert again.identical
    assert again.commands.tobytes() == SavedLog.load(folder).rows["command"].tobytes()
    assert (again.commands[:, 2] > 0).any()


def test_a_replay_filters_as_the_run_did(tmp_path):
    """If the filter is removed from the log of a run, the replayed commands differ."""
    runtime, folder = recorded(tmp_path)
    assert (
        describe(folder, lambda said: said | {"config": said["config"] | {"filter": False}})["config"]["filter"] is True
    )
    assert not replay(folder, runtime.contract, PurePolicy()).identical


def test_a_run_that_was_stopped_and_missed_deadlines_is_replayed_too(tmp_path):
    class Slow(PurePolicy):
        calls = 0

        def __call__(self, obs):
            self.calls += 1
            if self.calls in (20, 21, 40):
                robot.time.now_s += 0.03
            if self.calls == 60:
                runtime.stop("enough")
            return super().__call__(obs)

    runtime, robot = virtual_run(policy=Slow())
    result = runtime.run()
    assert str(result.stop) == "emergency stop: enough"
    assert result.missed >= 3
    assert replayed(runtime, tmp_path).identical


def test_the_command_as_sent_is_part_of_the_replay(tmp_path):
    runtime, robot = virtual_run(policy=PurePolicy())
    send = robot.send

    def held_back(command: Command) -> Command:
        return send(replace(command, position=np.clip(command.position, -1.6, 1.0)))

    robot.send = held_back
    runtime.run()
    assert replayed(runtime, tmp_path).identical


def test_a_robot_that_tripped_is_part_of_the_replay(tmp_path):
    runtime, robot = virtual_run(policy=PurePolicy(), contract=a1_contract(kind="torque"))
    send, robot.tripped = robot.send, ""

    def trip(command):
        robot.tripped = "" if len(robot.sent) < 125 else "B on the remote"
        return send(command)

    robot.send = trip
    assert runtime.run().stop.reason is Reason.ROBOT_TRIPPED
    assert replayed(runtime, tmp_path).identical


@pytest.mark.parametrize("rehearse", [False, True])
def test_a_robot_that_tripped_ends_a_dry_run_too_and_its_replay(tmp_path, rehearse):
    """B on the remote counts in a dry run, too."""
    runtime, robot = virtual_run(policy=PurePolicy(), dry_run=True, rehearse=rehearse)
    read, robot.tripped = robot.read, ""

    def press():
        robot.tripped = "" if robot.measurements < 500 else "B on the remote"  # at 2.5 s
        return read()

    robot.read = press
    result = runtime.run()
    assert str(result.stop) == "robot tripped: B on the remote"
    assert result.seconds == pytest.approx(2.5 + 0.2, abs=0.05)
    assert robot.sent == []
    assert replayed(runtime, tmp_path).identical


def test_a_replay_with_another_policy_lists_the_ticks_that_differ(tmp_path):
    runtime, folder = recorded(tmp_path)
    again = replay(folder, runtime.contract, SinePolicy())
    first = SavedLog.load(folder).rows
    assert not again.identical
    assert again.differences[0] == first["tick"][first["phase"] == Phase.POLICY][0]
    with pytest.raises(ValueError, match="belongs to another policy"):
        replay(folder, replace(runtime.contract, model_sha256="1" * 64), PurePolicy())


def without(said, key):
    return {name: value for name, value in said.items() if name != key}


def describe(folder, change):
    """Change log.json and return its earlier content."""
    said = json.loads((folder / "log.json").read_text())
    (folder / "log.json").write_text(json.dumps(change(said)))
    return said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said | {"config": said["config"] | {"warmth": 3}}, "config: unknown key 'warmth'"),
        (lambda said: said | {"safety": said["safety"] | {"stale_ms": "3"}}, "safety.stale_ms must be a finite number"),
        (lambda said: without(said, "safety"), "missing key: 'safety'"),
        (lambda said: without(said, "model_sha256"), "belongs to another policy: its model_sha256 is ''"),
    ],
)
def test_a_log_with_unknown_or_missing_settings_is_not_replayed(tmp_path, change, message):
    runtime, folder = recorded(tmp_path, **SHORT)
    describe(folder, change)
    with pytest.raises(ValueError, match=message):
        replay(folder, runtime.contract, PurePolicy())


def test_a_long_run_keeps_its_newest_part_and_cannot_be_replayed(tmp_path):
    runtime, robot = virtual_run(seconds=None, log_s=2.0)
    robot.fault = lambda state, seconds: runtime.stop("enough") or [state] if seconds > 10 else [state]
    runtime.run()
    folder = runtime.save_log(tmp_path)
    log = SavedLog.load(folder)
    assert log.description.num_ticks > 500
    assert len(log.rows["tick"]) == 108
    assert (np.diff(log.rows["tick"]) == 1).all()
    assert log.rows["tick"][-1] == log.description.num_ticks - 1
    with pytest.raises(ValueError, match="kept the last 108 of"):
        replay(folder, runtime.contract, SinePolicy())


def test_arrays_of_another_log_are_refused(tmp_path):
    """Both logs are complete and have the same number of ticks."""
    for name, seed in (("one", 0.3), ("two", 0.2)):
        recorded(tmp_path / name, **SHORT, command=(seed, 0.0, 0.0))
    (tmp_path / "two" / "log.npz").replace(tmp_path / "one" / "log.npz")
    with pytest.raises(ValueError, match=r"is damaged: log\.npz is not the one that log\.json describes"):
        SavedLog.load(tmp_path / "one")


def test_a_log_from_before_there_was_a_digest_is_read(tmp_path):
    _, folder = recorded(tmp_path, **SHORT)
    describe(folder, lambda said: without(said, "arrays_sha256"))
    assert SavedLog.load(folder).rows["tick"].size


def test_a_report_that_json_cannot_hold_leaves_nothing_behind(tmp_path):
    runtime, _ = virtual_run(**SHORT)
    runtime.run()
    with pytest.raises(ValueError, match="not JSON compliant"):
        runtime.save_log(tmp_path / "log", report={"speed": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_if_the_description_cannot_be_written_the_arrays_are_removed(tmp_path, monkeypatch):
    runtime, _ = virtual_run(**SHORT)
    runtime.run()

    def full(path, content):
        if path.name == "log.json":
            raise OSError("no space left")
        return atomic_write(path, content)

    monkeypatch.setattr("body_transformer.deploy.saved_log.atomic_write", full)
    with pytest.raises(OSError, match="no space left"):
        runtime.save_log(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_log_is_not_overwritten(tmp_path):
    runtime, folder = recorded(tmp_path, **SHORT)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(FileExistsError, match="already holds a log"):
        runtime.save_log(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize("where", ["read", "policy", "send"])
def test_a_run_that_raised_has_a_log_with_the_inputs_of_its_last_tick(tmp_path, where):
    runtime, robot = virtual_run()
    target, name = (runtime, "_policy") if where == "policy" else (robot, where)
    as_before = getattr(target, name)
    setattr(target, name, lambda *given: as_before(*given) if len(robot.sent) < 120 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runtime.run()
    folder = runtime.save_log(tmp_path)
    log = SavedLog.load(folder)
    rows = log.rows
    assert str(log.description.stop) == "error: ZeroDivisionError: division by zero"
    assert len(rows["tick"]) == (120 if where == "read" else 121)
    assert rows["state"][-1] == 1
    np.testing.assert_array_equal(rows["joint_pos"][-1], runtime.controller.measured.joint_pos)
    assert np.isfinite(rows["command"][-1]).all() == (where != "policy")
    assert np.isnan(rows["sent"][-1]).all() == (where != "read")
    assert np.isfinite(rows["command"][:-1]).all()
    assert np.isfinite(rows["sent"][:-1]).all()
    (deployment,) = read_deployments([folder])
    assert deployment.commanded_torque is None  # its policy commands positions


def test_five_thousand_ticks_take_no_more_memory_than_one_thousand():
    sizes = {}

    def watching(state, seconds):
        if state.sequence in (1000, 5000):
            sizes[state.sequence] = tracemalloc.get_traced_memory()[0]
        return [state]

    runtime, robot = virtual_run(watching, seconds=110.0, robot={"hz": 50.0})
    robot.keep = False
    tracemalloc.start()
    try:
        result = runtime.run()
    finally:
        tracemalloc.stop()
    assert result.ticks > 5000
    assert sizes[5000] - sizes[1000] < 2000  # bytes; one array per tick would be half a million
    assert runtime.log.rows()["tick"].shape == (result.ticks,)
    assert a1_contract() == runtime.contract


def test_a_log_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr("body_transformer.deploy.runtime.memory", lambda: 1e9)
    with pytest.raises(ValueError, match=r"the log would take 2\.\d GB, more than half of this computer's"):
        virtual_run(loop_hz=1000.0, seconds=1195.0)


def test_the_size_of_a_log_is_computed_before_the_run():
    runtime, _ = virtual_run()
    arrays = runtime.log.arrays.values()
    assert sum(array.nbytes for array in arrays) == num_bytes(runtime.log.capacity, 12, 48)
