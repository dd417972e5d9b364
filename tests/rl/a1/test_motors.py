"""Motors of the A1 in training: filter, loss, latency and interpolation of targets, as on the robot."""

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.deploy.action_pipeline import Interpolation, LowPass
from body_transformer.deploy.control import Filter
from body_transformer.rl.a1.model import ACTION_SCALE, DEFAULT_POSE
from body_transformer.rl.a1.motors import A1Motors
from body_transformer.rl.a1.options import WalkOptions
from body_transformer.rl.a1.parameters import A1Parameters
from body_transformer.rl.a1.state import A1Joints

FILTER = Filter(2, 13.0)
NUM_ENVS = 6


def make_motors(**options) -> A1Motors:
    """Return the motors of six robots without a bound on targets."""
    like = torch.zeros(NUM_ENVS, 1, dtype=torch.float64)
    default = like.new_tensor(DEFAULT_POSE)
    joints = A1Joints(default, default - 1, default + 1, torch.full_like(default, 33.5))
    chosen = WalkOptions(**{"bound_targets": False} | options)
    motors = A1Motors(like, joints, A1Parameters.draw(like, 0, chosen), chosen, FILTER)
    motors.restart(torch.ones(NUM_ENVS, 1, dtype=torch.bool))
    return motors


def aim(motors: A1Motors, action: torch.Tensor) -> None:
    motors.aim(action, torch.zeros_like(action), torch.zeros_like(action))


def random_actions(steps: int) -> torch.Tensor:
    return torch.randn(steps, NUM_ENVS, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_filtered_targets_are_those_of_the_robots_filter():
    motors, ours = make_motors(filter=True), LowPass(FILTER.cutoff_hz, 50.0, 12)
    ours.reset(DEFAULT_POSE)
    for action in random_actions(20):
        aim(motors, action)
        expected = ours(np.add(DEFAULT_POSE, ACTION_SCALE * action[0].numpy()))
        np.testing.assert_allclose(motors.targets[0, 0].numpy(), expected, atol=1e-12)


def test_interpolated_targets_are_those_of_a_robots_loop_of_50_100_or_200_hz():
    motors = make_motors(interpolate=True)
    ticks = A1Parameters.draw(torch.zeros(NUM_ENVS, 1), 0, WalkOptions(interpolate=True)).ticks.tolist()
    assert set(ticks) == {1, 2, 4}
    lines = [Interpolation(count, 12) for count in ticks]
    for line in lines:
        line.reset(DEFAULT_POSE)
    for action in random_actions(10):
        aim(motors, action)
        for line, own in zip(lines, action, strict=True):
            line.aim(np.add(DEFAULT_POSE, ACTION_SCALE * own.numpy()))
        for step in range(4):
            expected = [line.at(step * line.steps // 4).copy() for line in lines]
            np.testing.assert_allclose(motors.target(step).numpy(), expected, atol=1e-12)


def test_interpolation_goes_on_across_control_steps_after_a_latency():
    motors = make_motors(interpolate=True, latency=(6, 6))
    default, one = torch.tensor(DEFAULT_POSE, dtype=torch.float64), torch.ones(NUM_ENVS, 12, dtype=torch.float64)
    moved = []
    for _ in range(3):
        aim(motors, one)
        moved += [((motors.target(step) - default) / ACTION_SCALE)[:, 0] for step in range(4)]
    seen = torch.stack(moved)  # [12, B]
    assert (seen[:6] == 0).all()
    for k, count in enumerate(A1Parameters.draw(torch.zeros(NUM_ENVS, 1), 0, WalkOptions(interpolate=True)).ticks):
        expected = [(step * int(count) // 4 + 1) / int(count) for step in range(4)] + [1.0, 1.0]
        np.testing.assert_allclose(seen[6:, k].numpy(), expected, atol=1e-12)


def test_a_lost_action_leaves_the_target_before_and_the_share_of_losses_is_that_of_the_option():
    torch.manual_seed(0)
    motors = make_motors(loss=0.3)
    kept = []
    for action in random_actions(400):
        before = motors.targets[0].clone()
        aim(motors, action)
        wanted = torch.tensor(DEFAULT_POSE, dtype=torch.float64) + ACTION_SCALE * action
        is_lost = (motors.targets[0] == before).all(-1)
        assert torch.equal(motors.targets[0][~is_lost], wanted[~is_lost])
        kept.append(is_lost.double())
    assert torch.stack(kept).mean().item() == pytest.approx(0.3, abs=0.04)


def test_motors_have_the_gain_and_the_damping_of_their_robot():
    motors = make_motors(stiffness=(2.0, 2.0), damping=(0.5, 0.5))
    aim(motors, torch.zeros(NUM_ENVS, 12, dtype=torch.float64))
    default = torch.tensor(DEFAULT_POSE, dtype=torch.float64).expand(NUM_ENVS, -1)
    torque = motors.torque(0, default - 0.1, torch.full_like(default, 2.0))
    torch.testing.assert_close(torque, motors._strength * (100 * 0.1 - 0.5 * 2.0))


def test_a_restart_forgets_the_targets_of_the_chosen_robots_only():
    motors = make_motors(filter=True, interpolate=True, latency=(0, 8))
    for action in random_actions(5):
        aim(motors, action)
    before = motors.targets.clone()
    chosen = torch.zeros(NUM_ENVS, 1, dtype=torch.bool)
    chosen[2] = True
    motors.restart(chosen)
    default = torch.tensor(DEFAULT_POSE, dtype=torch.float64)
    assert (motors.targets[:, 2] == default).all()
    assert torch.equal(motors.targets[:, :2], before[:, :2])
    aim(motors, torch.zeros(NUM_ENVS, 12, dtype=torch.float64))
    torch.testing.assert_close(motors.targets[0, 2], default)
