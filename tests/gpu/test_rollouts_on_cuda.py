"""Demonstrations of a mocap-expert on a GPU: they are made, kept and drawn there."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

pytest.importorskip("mjlab", reason="mjlab is not installed")
pytest.importorskip("dm_control", reason="dm_control is not installed")

from body_transformer import Policy
from body_transformer.experiment import load_experiment
from body_transformer.imitation.episodes import EpisodeInfo
from body_transformer.imitation.losses import CloningLoss
from body_transformer.imitation.on_device import DeviceBatches, OnDevice
from body_transformer.imitation.tasks.mocap.clips import MotionSource, convert
from body_transformer.imitation.tasks.mocap.generate import RolloutSettings
from body_transformer.imitation.train import Update

from ..rl.mocap.conftest import moving

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    """An expert that only follows the reference: its corrections are nearly zero."""
    from body_transformer.rl.mocap.options import ExpertOptions
    from body_transformer.rl.mocap.trained import Expert

    folder = tmp_path_factory.mktemp("expert")
    np.savez(folder / "motions.npz", CMU_900_01=moving(40, 0), CMU_900_04=moving(250, 3))
    convert(MotionSource.open(folder / "motions.npz"), folder / "clips.hdf5", scale=1.0)
    experiment = load_experiment("mocap-expert")
    torch.manual_seed(0)
    Policy(experiment.layout(), experiment.policy_config("mlp")).save(folder / "policy")
    return Expert(folder / "policy", ExpertOptions(clips=str(folder / "clips.hdf5")), "")


def recorded(expert, device):
    from body_transformer.rl.mocap.recorder import Recorder, planned

    plan = planned(expert.options.clip_file(), "train", RolloutSettings(3, 3))
    return plan, list(Recorder(expert, 8, device, 0, torch.float32).waves(plan, 0.0, mean_actions=False))


def test_rollouts_on_a_gpu_begin_as_on_a_cpu(expert):
    """Later they differ, because small differences grow."""
    (plan, ours), (_, theirs) = (recorded(expert, device) for device in ("cuda:0", "cpu"))
    assert sum(len(wave.lengths) for wave in ours) == len(plan) == 18
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.obs[0].cpu(), other.obs[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(mine.actions[:3].cpu(), other.actions[:3], atol=1e-2, rtol=0)


def test_an_epoch_of_updates_never_waits_for_the_host():
    layout = load_experiment("demo").layout()
    num_steps = 640
    obs = torch.randn(num_steps, layout.obs_dim, device="cuda", dtype=torch.bfloat16)
    actions = torch.randn(num_steps, layout.action_dim, device="cuda", dtype=torch.bfloat16)
    used = obs[:, torch.from_numpy(np.flatnonzero(layout.obs_node_ids != -1)).cuda()]
    episodes = OnDevice(layout, [EpisodeInfo(num_steps)], used, actions)
    policy = Policy(layout, load_experiment("demo").policy_config("bot-hard"))
    update = Update(CloningLoss(policy, "mse", torch.from_numpy(episodes.obs_ids)), 0.01, Accelerator())
    batches = DeviceBatches(episodes, 32, 0)
    for batch in batches.epoch(0):  # records the update
        update(*batch, 1e-3)
    epoch = batches.epoch(1)
    update(*next(epoch), 1e-3)  # copies the order of the epoch
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in epoch:
            update(*batch, 1e-3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        AcceleratorState._reset_state(reset_partial_state=True)
    assert torch.isfinite(update.loss_sum)
