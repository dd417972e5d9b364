"""Gymnasium environments: the order of observations, units of actions, successes, seeds, processes, films, faults."""

import math
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium_robotics", reason="needs the extra 'imitation'")

import gymnasium
import minari

from body_transformer import BodyGraph, Layout, Term
from body_transformer.imitation.collect import collect
from body_transformer.imitation.tasks import import_beside, make_task
from body_transformer.imitation.tasks.gym import STREAMS, GymTask, episode_seed

OWN = Path(__file__).parent / "own"
REACH = "my_pkg:Reach-v0"


@pytest.fixture(autouse=True)
def _own_module(monkeypatch):
    monkeypatch.syspath_prepend(str(OWN))


def layout_of(action_dim, **terms):
    """Return a layout of terms at the root, in this order; without terms: the arm's, in another order than its own."""
    graph = BodyGraph.from_edges(["base", "tip"], [("base", "tip")], root="base")
    terms = terms or {"target": 2, "joint_vel": 2, "joint_pos": 2}
    return Layout(graph, [Term.root(*term) for term in terms.items()], Term.node("ctrl", "tip", action_dim))


ARM = layout_of(2)


def reach(layout=ARM, **options):
    return GymTask(layout, REACH, **{"success": "reached", "num_processes": 1, **options})


def still(obs):
    return np.zeros((len(obs), 2), np.float32)


def towards(obs):
    """Move each joint against the sign of its position."""
    return -3 * np.sign(obs[:, 4:6])


def played(task, act=towards, num_episodes=2, seed=0, std=None):
    with closing(task):
        return list(task.record(act, range(num_episodes), seed, std))


# -- observations ------------------------------------------------------------------------------------------------------


def reset_obs(layout, **options):
    """Return the first observation of an episode, and the dictionary from which it was made."""
    (one,) = played(reach(layout, **options), still, num_episodes=1)
    env = gymnasium.make(REACH)
    return one.obs[0], env.reset(seed=one.seed)[0]


@pytest.mark.parametrize(
    ("terms", "keys", "order"),
    [
        ({"target": 2, "joint_vel": 2, "joint_pos": 2}, (), ["target", "joint_vel", "joint_pos"]),
        ({"target": 2}, (), ["target"]),
        ({"a": 2, "joint_pos": 4}, (), ["joint_pos", "joint_vel", "target"]),
        ({"a": 2, "b": 2}, ("target", "joint_pos"), ["target", "joint_pos"]),
    ],
    ids=["terms are keys", "some keys", "the space's order", "given"],
)
def test_keys_are_in_the_order_given_or_of_the_terms_or_of_the_space(terms, keys, order):
    flat, parts = reset_obs(layout_of(2, **terms), obs_keys=keys)
    assert flat.tolist() == [value for key in order for value in parts[key].tolist()]


def test_other_sizes_than_the_layouts_are_an_error_with_both_and_the_keys():
    with pytest.raises(
        ValueError,
        match=r"'my_pkg:Reach-v0' has 6 observation entries \(joint_pos 2, joint_vel 2, target 2\) and 2 actions; "
        "the layout has 5 and 2; obs_keys selects keys of the observation",
    ):
        reach(layout_of(2, a=5))
    with pytest.raises(ValueError, match="'Pendulum-v1' has 3 observation entries and 1 actions; the layout has 6 and"):
        GymTask(ARM, "Pendulum-v1")


# -- actions -----------------------------------------------------------------------------------------------------------


def test_actions_are_in_the_environments_units_and_clipped_to_its_space():
    (one, _) = played(reach())
    assert set(np.abs(one.executed).ravel()) == {2.0}
    assert np.array_equal(one.clean, one.executed)
    moved = np.diff(one.obs[:, 4:6], axis=0)
    np.testing.assert_allclose(moved, 0.05 * one.executed, atol=1e-6)


def test_noise_is_added_to_the_executed_action_only_and_is_that_of_the_episode():
    std = np.array([0.1, 5.0])
    noisy, other = played(reach(), still, std=std)
    assert not noisy.clean.any()
    assert 0.05 < noisy.executed[:, 0].std() < 0.2
    assert np.abs(noisy.executed[:, 1]).max() == 2.0
    assert not np.array_equal(noisy.executed, other.executed)
    with closing(reach()) as task:
        (again,) = task.record(still, range(1, 2), 0, std)
    assert np.array_equal(again.executed, other.executed)


def test_the_policy_gets_float32_and_the_recording_keeps_float64():
    seen = []

    def act(obs):
        seen.append(obs)
        return obs[:, :1]

    (one,) = played(GymTask(layout_of(1, obs=4), "InvertedPendulum-v5", num_processes=1), act, num_episodes=1)
    assert {obs.dtype for obs in seen} == {np.dtype(np.float32)}
    assert (one.obs.shape, one.obs.dtype) == ((one.num_steps + 1, 4), np.float64)
    assert np.array_equal(one.obs[:-1].astype(np.float32), np.concatenate(seen))
    assert not np.array_equal(one.obs[:-1], np.concatenate(seen))


def test_bounds_that_float32_cannot_hold_are_rounded_towards_the_inside():
    low, high = np.array([-0.1, -np.inf, -0.5]), np.array([0.1, np.inf, 0.7])
    env = gymnasium.make("Pendulum-v1")
    env.unwrapped.action_space = space = gymnasium.spaces.Box(low, high, dtype=np.float64)
    from body_transformer.imitation.tasks import gym

    class Env:
        env_id = "x"

    Env.env = env.unwrapped
    lower, upper = gym._bounds(Env)
    assert space.contains(np.clip(np.full(3, -9, np.float32), lower, upper))
    assert space.contains(np.clip(np.full(3, 9, np.float32), lower, upper))
    np.testing.assert_allclose([lower, upper], [low, high], rtol=1e-6)


# -- success, returns, length ------------------------------------------------------------------------------------------


def test_success_is_the_named_info_at_the_last_and_at_any_step():
    with closing(reach()) as task:
        found = task.rollouts(towards, 40, 0, "validation")
    assert task.metrics == ("success", "success_any", "total_reward")
    assert {(one.success, one.success_any) for one in found} >= {(True, True), (False, True), (False, False)}
    assert all(one.success_any >= one.success for one in found)
    assert {one.length for one in found} == {20}


def test_a_key_may_be_missing_before_the_last_step():
    with closing(reach(options={"fault": "late"})) as late, closing(reach()) as always:
        assert [one.success for one in late.rollouts(towards, 9, 0, "validation")] == [
            one.success for one in always.rollouts(towards, 9, 0, "validation")
        ]


def test_without_a_key_a_task_has_returns_and_lengths_only(tmp_path):
    with closing(reach(success=None)) as task:
        (one,) = task.rollouts(still, 1, 0, "validation")
        assert (task.metrics, one.success, one.success_any) == (("total_reward", "length"), None, None)
        assert one.length == 20
        found = collect(task, still, 2, tmp_path / "set")
        assert (found.success_rate, found.summary()["success_any_rate"]) == (None, None)
        assert "success" not in minari.MinariDataset(tmp_path / "set")[0].infos
        with pytest.raises(ValueError, match="my_pkg:Reach-v0 has no successes: set the task's option"):
            collect(task, still, 2, tmp_path / "other", only_successes=True)


def test_episodes_end_at_the_time_limit_or_earlier():
    with closing(reach(max_steps=7)) as task:
        assert {one.length for one in task.rollouts(still, 5, 0, "validation")} == {7}
    with closing(GymTask(layout_of(1, obs=4), "InvertedPendulum-v5", num_processes=1)) as task:
        lengths = {one.length for one in task.rollouts(lambda obs: 3 * np.sign(obs[:, 1:2]), 5, 0, "validation")}
    assert max(lengths) < 100
    with pytest.raises(ValueError, match="'my_pkg:ReachForever-v0' has no time limit: give max_steps"):
        GymTask(ARM, "my_pkg:ReachForever-v0")
    with pytest.raises(ValueError, match="max_steps must be 1 or more; got 0"):
        reach(max_steps=0)


def test_options_reach_the_environment():
    near, far = (played(reach(options={"length_m": length}))[0] for length in (1.0, 3.0))
    np.testing.assert_allclose(far.obs[0, :2], 3 * near.obs[0, :2], rtol=1e-6)


# -- seeds and processes -----------------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_episodes_and_demonstrations_start_elsewhere_than_evaluations():
    with closing(reach()) as task:
        evaluated = task.rollouts(towards, 3, 5, "validation")
        assert task.rollouts(towards, 3, 5, "validation") == evaluated
        assert task.rollouts(towards, 3, 6, "validation") != evaluated
    first, again = played(reach(), seed=5), played(reach(), seed=5)
    assert all(np.array_equal(one.obs, two.obs) for one, two in zip(first, again, strict=True))
    assert episode_seed(5, 0, "train") == first[0].seed != episode_seed(5, 0, "validation")


def test_seeds_differ_between_episodes_splits_and_seeds():
    seeds = {episode_seed(seed, k, split) for seed in (0, 1) for k in range(50) for split in STREAMS}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_more_episodes_than_lanes_are_played_in_rounds_and_do_not_depend_on_each_other(monkeypatch):
    sizes, done = [], []

    def act(obs):
        sizes.append(len(obs))
        return towards(obs)

    with closing(reach()) as task:
        whole = task.rollouts(towards, 5, 0, "validation")
        monkeypatch.setattr("body_transformer.imitation.tasks.gym.MAX_LANES", 2)
        assert task.rollouts(act, 5, 0, "validation", done.append) == whole
        (third,) = task.record(towards, range(2, 3), seed=0)
        assert np.array_equal(third.obs, list(task.record(towards, range(3), seed=0))[2].obs)
    assert sizes == [2] * 20 + [2] * 20 + [1] * 20
    assert done == [1, 2, 3, 4, 5]


def test_an_environment_that_cannot_be_pickled_runs_in_several_processes():
    results = []
    for num_processes in (1, 2):
        with closing(reach(num_processes=num_processes)) as task:
            results.append(task.rollouts(towards, 3, 0, "validation"))
            assert len(task._envs.processes) == (2 if num_processes == 2 else 0)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("name", "success", "terms", "action_dim", "num_steps"),
    [
        ("AntMaze_UMaze-v5", "success", {"observation": 105, "desired_goal": 2}, 8, 700),
        ("FetchReach-v4", "is_success", {"observation": 10, "desired_goal": 3}, 4, 50),
        ("HandReach-v3", "is_success", {"observation": 63, "desired_goal": 15}, 20, 50),
    ],
)
def test_environments_of_gymnasium_robotics_are_tasks(name, success, terms, action_dim, num_steps):
    with closing(GymTask(layout_of(action_dim, **terms), name, success, num_processes=1)) as task:
        (one,) = task.rollouts(lambda obs: np.tanh(obs[:, :action_dim]), 1, 0, "validation")
    assert one.length <= num_steps
    assert one.success in (True, False)
    assert math.isfinite(one.total_reward)


def test_a_dataset_names_the_environment_only_if_it_has_the_same_spaces(tmp_path):
    pendulum = GymTask(layout_of(1, obs=3), "Pendulum-v1", max_steps=5, options={"g": 9.0})
    with closing(pendulum), closing(reach()) as arm:
        collect(pendulum, lambda obs: np.ones((len(obs), 1), np.float32), 1, tmp_path / "pendulum", noise=0.5)
        collect(arm, still, 1, tmp_path / "arm")
    dataset = minari.MinariDataset(tmp_path / "pendulum")
    env, episode = dataset.recover_environment(), dataset[0]
    obs, _ = env.reset(seed=episode_seed(0, 0, "train"))
    assert np.array_equal(obs, episode.observations[0])
    for step, action in enumerate(episode.actions):
        obs, reward, _, truncated, _ = env.step(action)
        assert (reward, truncated) == (episode.rewards[step], episode.truncations[step])
    assert truncated
    assert minari.MinariDataset(tmp_path / "arm").spec.env_spec is None


# -- films -------------------------------------------------------------------------------------------------------------


def test_a_film_is_drawn_without_opengl_if_the_environment_needs_none(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    with closing(reach()) as task:
        frames = task.film(towards, 0, "validation")
    assert task.frames_hz == 25
    assert len(frames) == 1 + 20 // 2
    assert frames[0].shape == (64, 64, 3)
    assert (frames[0] != frames[-1]).any()


@pytest.mark.parametrize(
    ("name", "fault", "message"),
    [
        ("my_pkg:Blind-v0", "", "no film: environment 'my_pkg:Blind-v0' must support the render mode rgb_array; its"),
        (REACH, "render", r"cannot be drawn: ValueError: render must return \[height, width, 3\] of uint8; got object"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_named(name, fault, message):
    with closing(GymTask(ARM, name, options={"fault": fault})) as task, pytest.raises(ValueError, match=message):
        task.film(still, 0, "validation")


def test_a_simulator_that_needs_opengl_says_so_where_there_is_none(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    task = GymTask(layout_of(1, obs=4), "InvertedPendulum-v5")
    with closing(task), pytest.raises(ValueError, match=r"cannot be drawn: .*MUJOCO_GL=disabled turns it off"):
        task.film(lambda obs: obs[:, :1], 0, "validation")


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Nope-v0", {}, "environment 'Nope-v0' cannot be made: Environment `Nope` doesn't exist"),
        ("AntMaze_UMaze-v99", {}, "cannot be made: Environment version `v99` for environment `AntMaze_UMaze` doesn't"),
        ("no_such_pkg:MyEnv-v0", {}, "'no_such_pkg:MyEnv-v0' cannot be made: No module named 'no_such_pkg'"),
        (REACH, {"options": {"speed": 3}}, "cannot be made: TypeError: .*unexpected keyword argument 'speed'"),
        (REACH, {"options": {"fault": "make"}}, r"RuntimeError: the arm is not connected.* \(my_pkg.py, line 21\)"),
        (REACH, {"options": {"fault": "discrete"}}, r"action space Discrete\(4\); a policy needs a Box of floating"),
        (REACH, {"obs_keys": ("joint_pso",)}, "unknown obs_key 'joint_pso'; did you mean 'joint_pos'?"),
        ("Pendulum-v1", {"obs_keys": ("x",)}, "'Pendulum-v1' has one observation without keys; remove obs_keys"),
        ("my_pkg:Sequence-v0", {}, "its observation has no fixed number of entries: Sequence"),
        (REACH, {"num_processes": 0}, "number of processes must be 1 or more; got 0"),
    ],
)
def test_an_environment_that_does_not_fit_is_refused_before_any_step(name, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        GymTask(ARM, name, **options)
    assert "\n" not in str(caught.value)


NAN = r"returned an observation that is not finite \(NaN or infinite\) at step 2: entries 2, 3"
STEP = r"failed at step 3: KeyError: 'motor' \(my_pkg.py, line 39\)"


@pytest.mark.parametrize(
    ("num_processes", "fault", "success", "message"),
    [
        (1, "nan", None, NAN),
        (2, "nan", None, NAN),
        (1, "step", None, STEP),
        (2, "step", None, STEP),
        (1, "reward", None, "returned the reward nan at step 1"),
        (1, "shape", None, "returned an observation that does not fit its space: ValueError: it must have 6 observ"),
        (1, "", "reachd", r"unknown key of info 'reachd'; did you mean 'reached'\? have: 'reached', 'distance'"),
    ],
)
def test_a_fault_during_an_episode_is_reported_in_one_sentence(num_processes, fault, success, message, recwarn):
    task = reach(success=success, options={"fault": fault}, num_processes=num_processes)
    with closing(task), pytest.raises(ValueError, match=message) as caught:
        task.rollouts(still, 2, 0, "validation")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("environment 'my_pkg:Reach-v0'")
    assert not recwarn


def test_options_may_be_text_of_a_command_line_or_values_of_a_file():
    text = {"id": REACH, "options": "{length_m: 2.0}", "max_steps": "3", "obs_keys": "[target, joint_vel, joint_pos]"}
    values = {
        "id": REACH,
        "options": {"length_m": 2.0},
        "max_steps": 3,
        "obs_keys": ["target", "joint_vel", "joint_pos"],
    }
    first, second = (played(make_task("gym", ARM, options))[0] for options in (text, values))
    assert np.array_equal(first.obs, second.obs)
    assert first.num_steps == 3
    with pytest.raises(ValueError, match=r"task gym: unknown option 'sucess'; did you mean 'success'\?"):
        make_task("gym", ARM, {"id": REACH, "sucess": "reached"})
    with pytest.raises(ValueError, match="task gym: missing key: 'id'"):
        make_task("gym", ARM, {})


# -- tasks of another module -------------------------------------------------------------------------------------------

OWN_TASK = """
from __future__ import annotations
from typing import TYPE_CHECKING
from body_transformer.imitation.tasks.base import ImitationTask, Rollout
if TYPE_CHECKING:
    from body_transformer import Layout

class Mine(ImitationTask):
    metrics = ("total_reward",)
    def __init__(self, layout, bonus: float = 1.0, untyped=None):
        self.layout, self.bonus, self.untyped = layout, bonus, untyped
    def rollouts(self, act, num_episodes, seed, split, on_done=None):
        return [Rollout("", 1, self.bonus) for _ in range(num_episodes)]

class Unfinished(ImitationTask):
    def __init__(self, layout): ...

class Typed(Mine):
    def __init__(self, layout: Layout): ...
"""


@pytest.fixture
def own_tasks(tmp_path, monkeypatch):
    (tmp_path / "own_tasks.py").write_text(OWN_TASK, encoding="utf-8")
    (tmp_path / "broken_tasks.py").write_text("import math\nmath.sqroot(2)\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    import_beside(str(tmp_path / "mine.yaml"))
    yield
    sys.modules.pop("own_tasks", None)


@pytest.mark.usefixtures("own_tasks")
def test_a_task_of_another_module_is_made_with_the_layout_and_its_options():
    task = make_task("own_tasks:Mine", ARM, {"bonus": "2", "untyped": "[1]"})
    assert (task.layout, task.bonus, task.untyped, task.splits) == (ARM, 2.0, [1], ("validation",))
    with pytest.raises(ValueError, match="no film: the task Mine has no method 'film'"):
        task.film(still, 0, "validation")


@pytest.mark.usefixtures("own_tasks")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_task", "unknown task 'own_task'; have: 'adroit', 'gym', 'mocap', 'tracking', or MODULE:CLASS"),
        ("no_such:Mine", "the task 'no_such:Mine' cannot be imported: ModuleNotFoundError: No module named 'no_such'"),
        ("own_tasks:Min", "cannot be imported: AttributeError: module 'own_tasks' has no attribute 'Min'"),
        ("broken_tasks:Mine", r"AttributeError: module 'math' has no attribute 'sqroot' \(broken_tasks.py, line 2\)"),
        (
            "json:JSONDecoder",
            "not a task: it must be a subclass of body_transformer.imitation.tasks.base.ImitationTask",
        ),
        ("own_tasks:Unfinished", "the task 'own_tasks:Unfinished' lacks a method: 'rollouts'"),
        ("own_tasks:Typed", "the types of the options of task 'own_tasks:Typed' cannot be read: name 'Layout' is not"),
    ],
)
def test_a_name_that_is_not_a_task_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        make_task(name, ARM, {})
