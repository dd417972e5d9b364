"""Metrics and paths of walking robots, from motions made by hand and from environments."""

import math
from contextlib import closing

import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.evaluate import rollouts
from body_transformer.rl.walking import Motion, WalkingMetrics

from .environments import CARTPOLE, G1, GO1

DT = 0.02
STEPS = 500


def walk(speed: float, turning: float, command: tuple[float, float, float], heading: float = 0.0, until: int = STEPS):
    """Return the metrics of one robot that walks at this speed and turning rate for 10 s, or until it has fallen."""
    at, angle = torch.zeros(1, 2, dtype=torch.float64), heading
    swing = torch.zeros(1, 2, 2)
    known = {"power": torch.tensor([50.0]), "slip": torch.tensor([0.1])}
    commanded = torch.tensor([command])

    def motion() -> Motion:
        return Motion(at.clone(), torch.tensor([math.remainder(angle, 2 * math.pi)]), commanded, thighs=swing, **known)

    metrics = WalkingMetrics(motion(), DT)
    for step in range(STEPS):
        at += DT * speed * torch.tensor([[math.cos(angle), math.sin(angle)]])
        angle += DT * turning
        phase = 2 * math.pi * step * DT
        swing = torch.tensor([[[0.3 * math.sin(phase), -0.2 * math.sin(phase)]] * 2])
        metrics.add(motion(), torch.tensor([step < until]))
    return metrics


@pytest.mark.parametrize("heading", [0.0, 2.0])
def test_a_straight_walk_as_commanded_has_no_errors(heading):
    found = walk(0.5, 0.0, (0.5, 0.0, 0.0), heading).result()
    assert found["ahead"].item() == pytest.approx(5.0)
    for name in ("drift", "heading_error", "sideways_error", "turning_error"):
        assert found[name].item() == pytest.approx(0.0, abs=1e-5), name
    assert found["power"].item() == pytest.approx(50.0)
    assert found["foot_slip"].item() == pytest.approx(0.1)
    assert found["asymmetry"].item() == pytest.approx(0.1 / 0.25, rel=1e-3)


def test_a_circle_that_is_not_commanded_is_a_drift_and_an_error_of_the_heading():
    found = walk(0.5, 0.2, (0.5, 0.0, 0.0)).result()
    radius = 0.5 / 0.2
    assert found["heading_error"].item() == pytest.approx(math.degrees(2.0), rel=1e-4)
    assert found["turning_error"].item() == pytest.approx(0.2, rel=1e-4)
    assert found["drift"].item() == pytest.approx(radius * (1 - math.cos(2.0)), rel=0.01)
    assert found["ahead"].item() == pytest.approx(radius * math.sin(2.0), rel=0.01)


def test_turns_add_up_beyond_half_a_turn():
    found = walk(0.3, -0.8, (0.3, 0.0, -0.8)).result()
    assert found["heading_error"].item() == pytest.approx(0.0, abs=1e-3)
    assert found["drift"].item() == pytest.approx(0.0, abs=1e-3)


def test_a_sideways_error_is_in_the_robots_own_frame():
    found = walk(0.0, 0.0, (0.0, 0.3, 0.0), heading=1.0).result()
    assert found["sideways_error"].item() == pytest.approx(0.3)
    assert found["drift"].item() == pytest.approx(3.0)


def test_steps_after_the_end_of_an_episode_do_not_count():
    metrics = walk(0.5, 0.0, (0.5, 0.0, 0.0), until=250)
    assert metrics.result()["ahead"].item() == pytest.approx(2.5)
    assert metrics.result()["drift"].item() == pytest.approx(0.0, abs=1e-6)
    assert metrics.paths().walked[-1, 0, 0].item() == pytest.approx(2.5)


def test_paths_begin_at_the_origin_and_face_ahead():
    paths = walk(0.5, 0.2, (0.5, 0.0, 0.0), heading=2.0).paths()
    assert paths.walked.shape == paths.commanded.shape == (102, 1, 2)
    assert (paths.walked[0] == 0).all()
    torch.testing.assert_close(paths.commanded[-1, 0], torch.tensor([5.0, 0.0], dtype=torch.float64), atol=1e-6, rtol=0)
    assert paths.walked[-1, 0, 1] > 3
    assert paths.to_json()["commanded"][0][-1] == [5.0, 0.0]


@pytest.mark.parametrize("task", [GO1, G1])
def test_mjlabs_velocity_tasks_are_measured_too(task):
    from body_transformer.rl.registry import make_env

    with closing(make_env(f"mjlab:{task}", 2, 0, "cpu", play=True)) as env:
        env.cfg.episode_length_s = 0.4
        still = torch.zeros(2, env.action_manager.total_action_dim)
        found = rollouts(lambda obs: still[: len(obs)].clone(), env, 0)
    names = {"ahead", "drift", "heading_error", "sideways_error", "turning_error", "foot_slip", "power", "asymmetry"}
    assert found.walking.keys() == names
    assert all(value.isfinite().all() for value in found.walking.values())
    assert (found.walking["power"] > 0).all()
    assert found.summary().keys() == {"rollouts", "walking"}


def test_a_task_without_commanded_velocities_has_no_such_metrics():
    from body_transformer.rl.registry import make_env

    with closing(make_env(f"mjlab:{CARTPOLE}", 2, 0, "cpu", play=True)) as env:
        assert env.motion is None
