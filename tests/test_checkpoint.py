"""Checkpoints are complete or absent."""

import errno
import json
import os
import subprocess
import sys

import pytest
import torch

from body_transformer.checkpoint import TrainingState, newest_checkpoint, save_checkpoint
from body_transformer.policy_folder import find_policy

from .model import bodies

KILLED = """
import itertools, os, signal, sys, time, torch
from pathlib import Path
from body_transformer import Policy
from body_transformer.checkpoint import TrainingState, save_checkpoint

def save_forever(run):
    for step in itertools.count(1):
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.fill_(step)
        state = TrainingState({"optimizer.moment": torch.full((3000,), float(step))}, {"step": step})
        save_checkpoint(run, step, policy, state)

torch.set_num_threads(1)
folder, attempts = Path(sys.argv[1]), int(sys.argv[2])
policy = Policy.load(folder / "policy")
for attempt in range(attempts):
    child = os.fork()
    if child == 0:
        save_forever(folder / str(attempt))
    time.sleep(0.15 + 0.037 * attempt)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def make_policy():
    return bodies.make_policy(bodies.chain(2), variant="bot-hard", num_layers=1, ff_dim=8)


def state_of(step: int) -> TrainingState:
    return TrainingState({"optimizer.moment": torch.full((3000,), float(step))}, {"step": step})


def test_a_checkpoint_is_read_back_bit_for_bit(tmp_path):
    policy = make_policy()
    path = save_checkpoint(tmp_path, 7, policy, state_of(7))
    found = newest_checkpoint(tmp_path)
    assert path == tmp_path / "checkpoints" / "7" == found.path
    assert sorted(file.name for file in path.iterdir()) == [
        "policy.json",
        "policy.safetensors",
        "training_state.json",
        "training_state.safetensors",
    ]
    assert found.step == 7 == found.state.values["step"]
    assert torch.equal(found.state.tensors["optimizer.moment"], state_of(7).tensors["optimizer.moment"])
    for name, tensor in policy.state_dict().items():
        assert torch.equal(found.policy.state_dict()[name], tensor)


def test_the_newest_stay_and_last_points_at_the_newest(tmp_path):
    policy = make_policy()
    for step in (5, 10, 20, 100):
        save_checkpoint(tmp_path, step, policy, state_of(step), keep=2)
    folder = tmp_path / "checkpoints"
    assert sorted(entry.name for entry in folder.iterdir()) == ["100", "20", "last"]
    save_checkpoint(tmp_path, 101, policy, state_of(101), keep=2)
    assert sorted(entry.name for entry in folder.iterdir()) == ["100", "101", "last"]
    assert (folder / "last").resolve() == (folder / "101").resolve()
    assert find_policy(tmp_path).path.name == "101"
    assert find_policy(folder / "last").step == 101


def test_a_repeated_step_replaces_its_checkpoint(tmp_path):
    policy = make_policy()
    save_checkpoint(tmp_path, 3, policy, state_of(1))
    save_checkpoint(tmp_path, 3, policy, state_of(3))
    assert newest_checkpoint(tmp_path).state.values == {"step": 3}


def test_a_run_without_checkpoints_has_none(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    with pytest.raises(FileNotFoundError, match="no policy in"):
        find_policy(tmp_path)


@pytest.mark.parametrize(
    "file", ["policy.safetensors", "policy.json", "training_state.safetensors", "training_state.json"]
)
@pytest.mark.parametrize("harm", ["truncated", "gone", "garbage"])
def test_a_corrupt_newest_checkpoint_is_named_and_the_one_before_is_used(tmp_path, file, harm):
    policy = make_policy()
    save_checkpoint(tmp_path, 1, policy, state_of(1))
    broken = save_checkpoint(tmp_path, 2, policy, state_of(2)) / file
    if harm == "gone":
        broken.unlink()
    else:
        content = broken.read_bytes()
        broken.write_bytes(content[: len(content) // 2] if harm == "truncated" else b"\x00" * len(content))
    with pytest.warns(UserWarning, match=r"checkpoints/2 cannot be used"):
        assert newest_checkpoint(tmp_path).step == 1


@pytest.mark.parametrize("keep", [1, 2])
def test_an_unreadable_later_checkpoint_is_removed_when_the_next_is_written(tmp_path, keep):
    policy = make_policy()
    save_checkpoint(tmp_path, 1, policy, state_of(1))
    (save_checkpoint(tmp_path, 9, policy, state_of(9)) / "policy.json").unlink()
    save_checkpoint(tmp_path, 5, policy, state_of(5), keep)
    assert newest_checkpoint(tmp_path).step == 5
    assert find_policy(tmp_path).step == 5


def test_a_run_with_unreadable_checkpoints_only_is_an_error(tmp_path):
    (save_checkpoint(tmp_path, 1, make_policy(), state_of(1)) / "policy.json").unlink()
    with (
        pytest.warns(UserWarning, match="cannot be used"),
        pytest.raises(ValueError, match=r"no checkpoint .* can be used; tried .*checkpoints/1"),
    ):
        newest_checkpoint(tmp_path)


def test_a_full_disk_leaves_the_old_checkpoint_and_is_named(tmp_path, monkeypatch):
    policy = make_policy()
    save_checkpoint(tmp_path, 1, policy, state_of(1))

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("body_transformer.checkpoint.write_tensors", full)
    with pytest.raises(OSError, match=r"cannot write the checkpoint .*2: No space left .*newest complete one is .*1"):
        save_checkpoint(tmp_path, 2, policy, state_of(2))
    assert newest_checkpoint(tmp_path).step == 1
    assert sorted(entry.name for entry in (tmp_path / "checkpoints").iterdir()) == ["1", "last"]


@pytest.mark.parametrize("num_bytes", [500, 6000])  # too few for the policy's tensors; for the state's
def test_a_file_size_limit_leaves_the_old_checkpoint_and_is_named(tmp_path, num_bytes):
    resource = pytest.importorskip("resource", reason="limits are for POSIX")
    policy = make_policy()
    save_checkpoint(tmp_path, 1, policy, state_of(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        with pytest.raises(
            OSError, match=r"cannot write the checkpoint .*2: .*File too large.*newest complete one is .*1"
        ):
            save_checkpoint(tmp_path, 2, policy, state_of(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert newest_checkpoint(tmp_path).step == 1
    assert sorted(entry.name for entry in (tmp_path / "checkpoints").iterdir()) == ["1", "last"]


def test_nothing_is_pickled(tmp_path):
    path = save_checkpoint(tmp_path, 1, make_policy(), state_of(1))
    assert json.loads((path / "training_state.json").read_text())["values"] == {"step": 1}
    for file in path.iterdir():
        assert b"__reduce__" not in file.read_bytes()
        assert not file.read_bytes().startswith((b"\x80", b"PK"))


def test_a_process_killed_at_any_moment_leaves_a_complete_checkpoint(tmp_path):
    make_policy().save(tmp_path / "policy")
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "8"], check=True, timeout=120)
    checkpoints = [newest_checkpoint(tmp_path / str(attempt)) for attempt in range(8)]
    assert any(checkpoints)
    for found in filter(None, checkpoints):
        assert found.state.values["step"] == found.step
        assert all((parameter == found.step).all() for parameter in found.policy.parameters())
        assert (found.state.tensors["optimizer.moment"] == found.step).all()
