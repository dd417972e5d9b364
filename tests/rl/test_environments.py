"""Whole environments on the CPU: FastEnv equals mjlab's environment; ends of episodes; broken simulations."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.envs.mjlab import terms_of
from body_transformer.rl.envs.world import World

from .environments import check_no_host_traffic, random_actions

TASKS = ("humanoid-mod", "humanoid-hill", "humanoid-board", "a1-walk", "a1-command")
QUIET: dict[str, dict[str, Any]] = {
    "a1-walk": {"noise": False},
    "a1-command": {"noise": False, "loss": 0.0, "push_every_s": None, "resample_every_s": 0.2},
}
"""Options without which two environments differ."""
HEAVY = {"a1-command": {"added_mass": (1.0, 3.0)}}
"""Options with which the speeds of a broken simulation stay finite for a step."""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in TASKS),
        ("humanoid-board", {"privileged_critic": True}),
        ("a1-walk", {"latency": (0, 6), "stiffness": (1.0, 2.0)}),
    ],
)
def test_a_step_of_fast_env_has_the_results_of_mjlabs_environment(env, name, options):
    fast, stock = (env(name, fast, **QUIET.get(name, {}), **options) for fast in (True, False))
    groups = ["actor", "critic"] if name.startswith("a1-") or options else ["actor"]
    torch.testing.assert_close(fast.get_observations(), stock.get_observations())
    ends = torch.zeros(2)
    for k, action in enumerate(random_actions(50, name, scale=2.0 if name.startswith("a1-") else 1.0)):
        if k in (20, 30):
            for made in (fast, stock):
                if k == 20:
                    made.episode_length_buf[:4] = 998
                else:
                    terms_of(made).world.qpos[5, 2] -= 0.15  # into the ground
        got, expected = fast.step(action), stock.step(action)
        assert list(got[0]) == list(expected[0]) == groups
        torch.testing.assert_close(got[0], expected[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(got[1], expected[1], atol=1e-5 if name.startswith("a1-") else 1e-4, rtol=1e-4)
        assert torch.equal(got[2], expected[2])
        assert torch.equal(got[3], expected[3])
        assert torch.equal(fast.episode_length_buf, stock.episode_length_buf)
        ends += torch.tensor([got[2].sum(), got[3].sum()])
    assert (ends >= 1).all()  # so there were resets to compare
    for group in groups:
        assert torch.equal(fast.get_observations()[group], got[0][group])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in TASKS[:3]),
        ("humanoid-board", {"privileged_critic": True}),
        ("a1-walk", {"latency": (0, 4), "push_every_s": 0.1}),
        ("a1-command", {}),
    ],
)
def test_a_step_of_fast_env_copies_nothing_between_host_and_device(env, name, options):
    check_no_host_traffic(env(name, **options), random_actions(3, name))


# -- ends of episodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", ["humanoid-mod", "a1-walk"])
def test_an_episode_ends_by_time_out_after_exactly_1000_steps(env, name, fast, monkeypatch):
    made, (still,) = env(name, fast), random_actions(1, name, scale=0.0)
    assert made.max_episode_length == 1000
    for physics in ("step", "forward"):
        monkeypatch.setattr(made.sim, physics, lambda: None)  # without physics robots survive, and the test is fast
    made.episode_length_buf[:] = 990
    for _ in range(9):
        _, _, died, late, _ = made.step(still)
        assert not (died | late).any()
    _, reward, died, late, _ = made.step(still)
    assert late.all()
    assert not died.any()
    assert (reward > 0).all()
    assert (made.episode_length_buf == 0).all()


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("humanoid-hill", [(99.5, 0), (-19.5, 0), (40, 99.5), (40, -99.5)]),
        ("a1-walk", [(16.1, 0), (-4.1, 0), (8, 7.3), (8, -7.3)]),
    ],
)
def test_an_episode_ends_by_time_out_at_the_end_of_the_ground(env, name, ends):
    made, (still,) = env(name), random_actions(1, name, scale=0.0)
    qpos = terms_of(made).world.qpos
    qpos[:4, :2] = torch.tensor(ends)
    qpos[:4, 2] = 1.4 if name == "a1-walk" else 3.0  # in the air
    _, reward, died, late, _ = made.step(still)
    assert late.tolist() == [True] * 4 + [False] * 4
    assert not died.any()
    assert (reward >= 0).all()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", TASKS)
def test_a_broken_simulation_is_a_death_and_does_not_affect_the_next_episode(env, name, fast):
    made, (still,) = env(name, fast, **HEAVY.get(name, {})), random_actions(1, name, scale=0.0)
    if fast:
        made.broken.zero_()
        made.non_finite.zero_()
    world = terms_of(made).world
    world.qvel[0] = torch.nan
    world.qpos[1, 0] = torch.inf
    world.qvel[2, 10] = 1000.0  # a joint
    world.qvel[3, 0] = 90.0
    obs, reward, died, late, _ = made.step(still)
    assert died.tolist() == [True] * 4 + [False] * 4
    assert not late.any()
    assert (reward[:4] == (0 if name.startswith("a1-") else -1)).all()
    if fast:
        assert made.broken == 4
        assert made.non_finite.tolist() == [True] * 2 + [False] * 6
        assert made.final_state()["qvel"][0].isnan().any()
        assert made.forward_speed.isfinite().all()
    for _ in range(4):
        assert all(group.isfinite().all() for group in obs.values())
        assert reward.isfinite().all()
        obs, reward, died, _, _ = made.step(still)
        assert not died.any()
        assert (reward > -1e-6).all()  # mjlab adds the terms to 0 in some order


@pytest.mark.parametrize(
    ("name", "steps", "scale"),
    # the hill: see test_ground.py
    [("humanoid-mod", 300, 1.0), ("humanoid-board", 300, 1.0), ("a1-walk", 120, 2.0), ("a1-command", 120, 2.0)],
)
def test_nothing_is_nan_and_all_contacts_have_room_over_many_random_steps(env, name, steps, scale):
    made = env(name)
    ends = 0
    for action in random_actions(steps, name, seed=2, scale=scale):
        obs, reward, died, late, _ = made.step(action)
        assert all(group.isfinite().all() for group in obs.values())
        assert reward.isfinite().all()
        if name == "a1-walk":
            assert obs["critic"][:, :3].abs().max() < 2 * 10  # m/s: no robot is thrown into the air
        ends += int((died | late).sum())
    assert ends > 4
    assert not made.sim.wp_data.overflow.numpy().any()


def test_without_activations_the_simulators_empty_array_is_not_read(env):
    """Some versions of PyTorch cannot wrap an empty array on a GPU."""
    sim = env("humanoid-mod", True).sim

    class Data:
        def __getattr__(self, name: str) -> Any:
            if name == "act":
                raise RuntimeError("The specified pointer resides on host memory")
            return getattr(sim.data, name)

    made: Any = SimpleNamespace(sim=SimpleNamespace(mj_model=sim.mj_model, data=Data()))
    assert World.of(made).act.shape == (8, 0)
