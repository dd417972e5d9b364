"""One list of terms: a term that is added to a task appears in all three executors."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from mjlab.envs import ManagerBasedRlEnv
from mjlab.utils.noise import UniformNoiseCfg

from body_transformer import Term
from body_transformer.rl.envs.cpu import CpuEnv
from body_transformer.rl.envs.fast import FastEnv
from body_transformer.rl.envs.mjlab import env_cfg, task_of
from body_transformer.rl.envs.terms import ObservationTerm, RewardTerm, obs_terms
from body_transformer.rl.infer_layout import infer_layout
from body_transformer.rl.registry import make_env_cfg, quiet

NUM_ENVS, NUM_STEPS = 4, 3


def action_sum(state) -> torch.Tensor:
    return state.action.sum(-1)


def first_actions(state) -> torch.Tensor:
    return state.action[:, :2]


def run(env, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return observations of the actor [T, B, O] and rewards [T, B]."""
    obs, rewards = [], []
    with closing(env), quiet():
        env.reset(seed=3)
        for action in actions:
            seen, reward = env.step(action)[:2]
            obs.append(seen["actor"].clone())
            rewards.append(reward.clone().float())  # mjlab writes the next ones into the same tensor
    return torch.stack(obs), torch.stack(rewards)


def with_terms(cfg, **changes):
    """Return the configuration of the task with these fields changed."""
    return env_cfg(replace(task_of(cfg), **changes), cfg.scene.num_envs, cfg.seed)


@pytest.mark.parametrize(("name", "options"), [("humanoid-mod", {}), ("a1-walk", {"noise": "false"})])
def test_a_term_that_is_added_to_the_list_is_the_same_in_every_executor(name, options):
    cfg = make_env_cfg(name, NUM_ENVS, 0, options=options)
    task = task_of(cfg)
    actor = (*task.obs["actor"], ObservationTerm(Term.root("first_actions", 2), first_actions))
    more = with_terms(
        cfg,
        obs=task.obs | {"actor": actor},
        rewards=task.rewards | {"action_sum": RewardTerm(action_sum, 0.5)},
        reward_at_least_0=False,
    )
    usual = with_terms(cfg, reward_at_least_0=False)
    generator = torch.Generator().manual_seed(0)
    actions = 0.2 * torch.randn(NUM_STEPS, NUM_ENVS, task.actions.size, generator=generator)
    expected = 0.5 * actions.sum(-1) * (task.control_dt if task.reward_per_second else 1.0)
    executors = (
        lambda chosen: FastEnv(chosen, "cpu"),
        lambda chosen: ManagerBasedRlEnv(chosen, "cpu"),
        lambda chosen: CpuEnv(chosen, num_threads=1),
    )
    for make in executors:
        with quiet():
            envs = make(usual), make(more)
        (obs, rewards), (more_obs, more_rewards) = (run(env, actions) for env in envs)
        torch.testing.assert_close(more_rewards - rewards, expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(more_obs[..., -2:], actions[..., :2])
        assert torch.equal(more_obs[..., :-2], obs)


def test_the_layout_of_a_task_has_the_terms_of_its_list():
    cfg = make_env_cfg("humanoid-mod", 1, 0)
    task = task_of(cfg)
    placed = ObservationTerm(Term.bodies("first_actions", ["head"], 2), first_actions)
    with quiet():
        env = FastEnv(with_terms(cfg, obs={"actor": (*task.obs["actor"], placed)}), "cpu")
    with closing(env):
        found = infer_layout(env, ["actor"])
    assert list(found.layout.obs) == [*(term.owners for term in task.obs["actor"]), placed.owners]
    assert found.layout.actions == (task.actions,)
    assert found.guessed == []


def test_owners_without_a_function_and_functions_without_owners_are_refused():
    owners = [Term.root("height", 1), Term.root("speed", 3)]
    with pytest.raises(ValueError, match="the layout has the terms 'height', 'speed'; the task computes 'height'"):
        obs_terms(owners, {"height": action_sum})
    with pytest.raises(ValueError, match="the task computes 'height', 'speed', 'heat'"):
        obs_terms(owners, dict.fromkeys(("height", "speed", "heat"), action_sum))


# -- FastEnv accepts only the task's own terms -------------------------------------------------------------------------

NOISE = UniformNoiseCfg(n_min=-0.1, n_max=0.1)
CHANGES = {
    "noise": ("humanoid-mod", lambda cfg: setattr(cfg.observations["actor"].terms["joint_pos"], "noise", NOISE)),
    "reward": ("humanoid-mod", lambda cfg: cfg.rewards.pop("effort")),
    "reward per second": ("a1-walk", lambda cfg: setattr(cfg, "scale_rewards_by_dt", False)),
    "floor": ("a1-walk", lambda cfg: setattr(cfg.rewards["floor"], "weight", 0.5)),
    "event": ("a1-walk", lambda cfg: cfg.events.pop("randomize")),
    "group": ("humanoid-mod", lambda cfg: cfg.observations.update(critic=cfg.observations["actor"])),
    "action": ("humanoid-mod", lambda cfg: cfg.actions.update(push=cfg.actions["torque"])),
    "a critic's term": ("humanoid-board", lambda cfg: cfg.observations["critic"].terms.pop("board_velocity")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_fast_env_refuses_a_configuration_that_differs_from_the_list(change):
    name, apply = CHANGES[change]
    cfg = make_env_cfg(name, 1, 0, options={"privileged_critic": "true"} if name == "humanoid-board" else {})
    apply(cfg)
    with pytest.raises(ValueError, match=r"FastEnv .*; use ManagerBasedRlEnv"):
        FastEnv(cfg, "cpu")
