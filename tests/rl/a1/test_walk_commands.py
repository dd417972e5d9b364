"""Commands of a1-command: their kinds, their changes within an episode, and the headings that robots turn to."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.a1.commands import draw_commands
from body_transformer.rl.a1.options import CommandOptions, WalkOptions
from body_transformer.rl.envs.mjlab import terms_of
from body_transformer.rl.registry import make_env_cfg

STILL = {"noise": False, "loss": 0.0, "push_every_s": None}


def test_kinds_of_commands_have_their_shares():
    drawn = draw_commands(np.random.default_rng(0), CommandOptions(), 4000, 1000)
    assert drawn.shape == (4000, 4, 5)
    standing = (drawn[..., :3] == 0).all(-1)
    straight = (drawn[..., 1:3] == 0).all(-1) & ~standing
    assert standing.mean() == pytest.approx(0.1, abs=0.01)
    assert straight.mean() == pytest.approx(0.25, abs=0.01)
    assert drawn[..., 4].mean() == pytest.approx(0.25, abs=0.01)
    assert not drawn[..., 4][standing | straight].any()
    free = drawn[~standing & ~straight][:, :3]
    np.testing.assert_allclose(free.min(0), [-0.5, -0.4, -1.0], atol=0.01)
    np.testing.assert_allclose(free.max(0), [1.0, 0.4, 1.0], atol=0.01)


def test_a_command_changes_when_it_is_due_and_not_before(new_env):
    made = new_env("a1-command", **STILL, resample_every_s=0.1, heading=0.0)
    robots = terms_of(made).robots
    made.reset(seed=0)
    schedule = robots.commands.schedule.clone()
    for step in range(1, 12):
        made.step(torch.zeros(8, 12))
        expected = schedule[:, step // 5, :3]
        going = made.episode_length_buf == step
        assert going.any()
        torch.testing.assert_close(robots.state.command[going], expected[going])


def test_a_robot_with_a_heading_turns_towards_it_by_the_shorter_way(new_env):
    made = new_env("a1-command", **STILL, resample_every_s=None, heading=1.0, straight=0.0, standing=0.0)
    robots, state = terms_of(made).robots, terms_of(made).robots.state
    made.reset(seed=0)
    robots.commands.schedule[:, 0, 3] = torch.linspace(-3.0, 3.0, 8)
    for angle in (0.0, 2.5, -2.5):
        state.root.quat[:] = torch.tensor([math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)])
        robots.commands.advance(made.episode_length_buf)
        error = (torch.linspace(-3.0, 3.0, 8) - angle + math.pi) % (2 * math.pi) - math.pi
        torch.testing.assert_close(state.command[:, 2], error.clamp(-1.0, 1.0), atol=1e-5, rtol=0)


def test_the_wanted_heading_begins_at_the_robots_and_turns_as_commanded(new_env):
    made = new_env("a1-command", **STILL, resample_every_s=None, heading=0.0)
    state = terms_of(made).robots.state
    made.reset(seed=0)
    begun, turning = state.wanted_heading.clone(), state.command[:, 2].clone()
    w, z = state.root.quat[:, 0], state.root.quat[:, 3]
    torch.testing.assert_close(begun, torch.atan2(2 * w * z, 1 - 2 * z * z))
    assert begun.std() > 0.5  # robots face anywhere
    for _ in range(5):
        made.step(torch.zeros(8, 12))
    torch.testing.assert_close(state.wanted_heading, begun + 0.1 * turning)


def test_an_evaluated_episode_has_one_command():
    from body_transformer.rl.envs.mjlab import task_of

    options = {"training": False, "evaluation": True}
    found = {name: task_of(make_env_cfg("a1-command", 2, 0, play=play)) for name, play in options.items()}
    assert found["training"].options.resample_every_s == 5.0
    assert found["evaluation"].options.resample_every_s is None


def test_a1_walk_has_the_papers_setting():
    options = WalkOptions()
    assert (options.filter, options.interpolate, options.loss, options.bound_targets) == (False, False, 0.0, True)
    assert options.friction == (0.0, 2.0)
    assert options.added_mass == (1.0, 3.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": 1.0}, "loss must be at least 0 and below 1; got 1.0"),
        ({"damping": (0.0, 1.0)}, "damping must be 0 < low <= high"),
        ({"added_mass": (-5.0, 0.0)}, "added_mass must be -4 <= low <= high"),
        ({"straight": 0.7, "heading": 0.5}, "standing must be a share: all shares are 0 or more, at most 1 together"),
        ({"resample_every_s": 0.001}, "resample_every_s must be at least a control step, 0.02; got 0.001"),
        ({"friction": (1.0, 0.5)}, "friction must be -1 < low <= high"),
        ({"com_offset": ((0.1, 0.0), (0.0, 0.0), (0.0, 0.0))}, "com_offset must be three ranges"),
    ],
)
def test_options_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        CommandOptions(**changes)
