"""The tracking task, its demonstrations and recordings, with the layout of the experiment demo."""

import dataclasses

import numpy as np
import pytest

from body_transformer import Layout, Policy, Term
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.readers import open_episodes
from body_transformer.imitation.tasks.base import evaluate
from body_transformer.imitation.tasks.tracking.bodies import MAX_ERROR_RAD, Bodies, lost
from body_transformer.imitation.tasks.tracking.demonstrations import demonstrate
from body_transformer.imitation.tasks.tracking.model import joint_names, pinned_model
from body_transformer.imitation.tasks.tracking.motions import CLIP_SEED, NUM_STEPS, draw_start
from body_transformer.imitation.tasks.tracking.observation import LayoutAdapter
from body_transformer.imitation.tasks.tracking.task import TrackingTask, play, rewards


@pytest.fixture(scope="module")
def layout():
    return load_experiment("demo").layout()


@pytest.fixture(scope="module")
def task(layout):
    return TrackingTask(layout)


def zeros(obs):
    return np.zeros((len(obs), 21), dtype=np.float32)


def spring(layout):
    """Return a policy that pulls towards the reference without compensating gravity."""
    pos, vel = layout.obs_slices["pos_error"].start, layout.obs_slices["vel_error"].start
    return lambda obs: 8 * obs[:, pos : pos + 21] + obs[:, vel : vel + 21]


# -- the experiment ----------------------------------------------------------------------------------------------------


def test_the_three_policies_have_equally_many_parameters(layout):
    experiment = load_experiment("demo")
    sizes = {
        name: Policy(layout, experiment.policy_config(name)).num_parameters
        for name in ("bot-hard", "transformer", "mlp")
    }
    assert sizes["bot-hard"] == sizes["transformer"]
    assert sizes["mlp"] == pytest.approx(sizes["bot-hard"], rel=0.02)


def test_the_encoder_is_deep_enough_to_connect_root_and_foot():
    experiment = load_experiment("demo")
    graph = experiment.robot.graph()
    assert experiment.policy.num_layers >= graph.hops[graph.index("torso"), graph.index("right_foot")]


# -- observations and actions ------------------------------------------------------------------------------------------


def test_every_entry_of_the_observation_has_the_value_of_its_name(layout):
    bodies = Bodies([draw_start("train", 0, 32, (1,), index) for index in range(3)])
    bodies.step(np.zeros((3, 21)))
    obs = LayoutAdapter(layout).obs(bodies)
    assert obs.dtype == np.float32
    names = layout.obs_names()
    assert obs.shape == (3, len(names)) == (3, 173)
    joints = joint_names()
    for k, start in enumerate(bodies.starts):
        seen = dict(zip(names, obs[k].tolist(), strict=True))
        assert [seen.pop(f"gravity.{axis}") for axis in range(3)] == pytest.approx(start.gravity.tolist())
        assert seen.pop("payload[right_hand]") == pytest.approx(start.payloads_kg[0])
        assert seen.pop("payload[left_hand]") == pytest.approx(start.payloads_kg[1])
        for j, joint in enumerate(joints):
            assert seen.pop(f"joint_pos[{joint}]") == pytest.approx(bodies.pos[k, j])
            assert seen.pop(f"joint_vel[{joint}]") == pytest.approx(bodies.vel[k, j])
            for step in range(3):  # one step is taken: the next references are 2, 3 and 4
                pos_error = start.clip.pos[2 + step, j] - bodies.pos[k, j]
                assert seen.pop(f"pos_error@{step}[{joint}]") == pytest.approx(pos_error, abs=1e-6)
                vel_error = start.clip.vel[2 + step, j] - bodies.vel[k, j]
                assert seen.pop(f"vel_error@{step}[{joint}]") == pytest.approx(vel_error, abs=1e-6)
        assert not seen


def test_a_layout_in_another_order_gets_the_same_entries_and_moves_the_same_joints(layout):
    def backwards(term):
        return dataclasses.replace(term, of=term.of[::-1])

    other = Layout(layout.graph, [backwards(term) for term in layout.obs[::-1]], backwards(layout.actions[0]))
    bodies = Bodies([draw_start("train", 0, 32, (1,), 0)])
    one, two = LayoutAdapter(layout), LayoutAdapter(other)
    assert dict(zip(layout.obs_names(), one.obs(bodies)[0], strict=True)) == dict(
        zip(other.obs_names(), two.obs(bodies)[0], strict=True)
    )
    actions = np.arange(21.0)[None]
    np.testing.assert_array_equal(two.to_joints(actions[:, ::-1]), one.to_joints(actions))
    np.testing.assert_array_equal(two.from_joints(actions), actions[:, ::-1])
    for arrangement in (one, two):
        np.testing.assert_array_equal(arrangement.to_joints(arrangement.from_joints(actions)), actions)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([Term.root("weather", 1)], "unknown term of the tracking task 'weather'"),
        ([Term.root("gravity", 2)], "with dim 3 and steps 1; got kind 'root', dim 2"),
        ([Term.bodies("payload", ["head"], 1)], "unknown owner 'head'"),
    ],
)
def test_an_unsupported_layout_is_refused(layout, terms, message):
    with pytest.raises(ValueError, match=message):
        TrackingTask(Layout(layout.graph, terms, layout.actions))


def test_every_joint_needs_its_action(layout):
    with pytest.raises(ValueError, match="one action per joint"):
        TrackingTask(Layout(layout.graph, layout.obs, Term.joints("torque", joint_names()[1:])))


# -- rollouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "validation", "unseen-tilt"])
def test_the_expert_reaches_the_end_of_every_clip(task, split):
    def expert(bodies, obs):
        return task.adapter.from_joints(bodies.expert()), bodies.expert()

    for episode in play(range(32), lambda index: task.start(split, 0, index), task.adapter, expert):
        assert episode.num_steps == NUM_STEPS == len(episode.obs) - 1
        assert episode.success.all()
        assert not episode.terminated
        assert episode.rewards.mean() > 0.98


def test_doing_nothing_fails_early(task):
    results = task.rollouts(zeros, 32, 0, "train")
    assert 0 < np.mean([result.normalized_length for result in results]) < 0.1


def test_results_are_normalised_by_the_longest_episode(task, layout):
    for result in task.rollouts(spring(layout), 8, 0, "train"):
        assert result.normalized_length == result.length / 150
        assert result.normalized_return == pytest.approx(result.total_reward / 150)
        assert 0 <= result.total_reward <= result.length
        assert result.success is None


def test_the_same_seed_gives_the_same_rollouts_for_every_batch_size(task, layout, monkeypatch):
    policy, calls = spring(layout), []
    whole = task.rollouts(policy, 12, 5, "train")
    assert 0.05 < np.mean([result.normalized_length for result in whole]) < 1  # some end before others
    assert task.rollouts(policy, 12, 6, "train") != whole
    monkeypatch.setattr("body_transformer.imitation.tasks.tracking.task.BATCH_SIZE", 5)
    assert task.rollouts(policy, 12, 5, "train", calls.append) == whole
    assert calls == sorted(calls)
    assert calls[-1] == 12


def test_error_and_reward():
    errors = np.array([[0.0, 0.0], [0.1, -0.1], [0.5, 0.0], [0.5, 0.02], [np.nan, 0.0]])
    assert lost(errors).tolist() == [False, False, False, True, True]
    assert MAX_ERROR_RAD == 0.25
    np.testing.assert_allclose(rewards(errors)[:3], [1, np.exp(-0.2), np.exp(-2.5)])


def test_an_evaluation_has_all_metrics_for_every_split(task):
    found = evaluate(zeros, task, 4, 0)
    assert list(found) == list(task.splits) == ["train", "validation", "unseen-tilt"]
    assert all(list(metrics) == ["normalized_return", "normalized_length"] for metrics in found.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": ["test"]}, "unknown split 'test'; have: 'train', 'validation', 'unseen-tilt'"),
        ({"num_episodes": 0}, "num_episodes must be 1 or more and the seed 0 or more; got 0 and 0"),
        ({"seed": -1}, "got 4 and -1"),
    ],
)
def test_bad_arguments_of_an_evaluation_are_refused(task, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(zeros, task, **{"num_episodes": 4, "seed": 0} | options)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda obs: np.zeros((len(obs), 20)), r"must return actions \[2, 21\]; got \[2, 20\]"),
        (lambda obs: np.full((len(obs), 21), np.nan), "not finite"),
    ],
)
def test_invalid_actions_are_refused(task, policy, message):
    with pytest.raises(ValueError, match=message):
        task.rollouts(policy, 2, 0, "train")


def test_bad_options_are_refused(layout):
    with pytest.raises(ValueError, match="num_clips must be 1 or more and clip_seed 0 or more; got 0 and 1"):
        TrackingTask(layout, num_clips=0)
    with pytest.raises(ValueError, match=r"num_clips and repetitions must be 1 or more, .* got 32, 0, 0 and 1"):
        demonstrate(layout, 32, 0)


# -- demonstrations ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def episodes(layout):
    return demonstrate(layout, num_clips=3, repetitions=2, seed=4)


def test_every_clip_is_demonstrated_the_requested_number_of_times(episodes):
    shown = [(info.clip, info.split, info.num_steps) for info in episodes.infos]
    assert shown == [(f"train-{k % 3}", "train", 150) for k in range(6)]
    steps = episodes.read(0)
    assert (steps.obs.shape, steps.actions.shape) == ((150, 173), (150, 21))


def test_a_demonstration_is_a_function_of_its_seed_and_number(layout, episodes):
    again, other = (demonstrate(layout, num_clips=3, repetitions=1, seed=seed) for seed in (4, 5))
    for index in range(3):
        assert episodes.read(index).obs.tobytes() == again.read(index).obs.tobytes()
        assert episodes.read(index).actions.tobytes() == again.read(index).actions.tobytes()
    assert episodes.read(0).obs.tobytes() != other.read(0).obs.tobytes()


def by_term(episodes, steps):
    """Return term -> its entries; every term of this layout is used."""
    return {name: steps.obs[:, place] for name, place in episodes.layout.obs_slices.items()}


def test_labels_are_the_experts_actions_without_noise(layout, episodes):
    """Check that a label is the inverse dynamics of the observed state."""
    index = 1
    steps = episodes.read(index)
    bodies = Bodies([draw_start("train", CLIP_SEED, 3, (4, 1), index)])
    named = by_term(episodes, steps)
    for time in (0, 40, 149):
        bodies.time = time
        bodies.pos, bodies.vel = (named[name][time][None].astype(np.float64) for name in ("joint_pos", "joint_vel"))
        np.testing.assert_allclose(steps.actions[time], bodies.expert()[0], atol=2e-3)  # the state is rounded
    clean = demonstrate(layout, num_clips=3, repetitions=2, seed=4, max_noise=0)
    assert np.abs(by_term(clean, clean.read(index))["pos_error"]).mean() < np.abs(named["pos_error"]).mean()
    np.testing.assert_array_equal(clean.read(index).actions[0], steps.actions[0])  # no noise yet
    assert np.abs(clean.read(index).actions - steps.actions).max() > 0.05


def test_an_episode_ends_where_noise_makes_it_lose_the_clip(layout):
    wild = demonstrate(layout, num_clips=4, repetitions=1, max_noise=6)
    lengths = [info.num_steps for info in wild.infos]
    assert min(lengths) < 150
    assert all(len(wild.read(k).obs) == len(wild.read(k).actions) == length for k, length in enumerate(lengths))


def test_the_shared_model_stays_upright(episodes):
    assert pinned_model().body("torso").quat.tolist() == [1, 0, 0, 0]


# -- recording ---------------------------------------------------------------------------------------------------------


def test_a_collected_dataset_can_be_read_and_replayed(layout, tmp_path):
    Policy(layout, load_experiment("demo").policy_config("mlp")).save(tmp_path / "policy")
    pytest.importorskip("minari", reason="needs the extra 'imitation'")
    command = ["collect", "demo", "--policy", str(tmp_path / "policy"), "--episodes", "3"]
    assert main([*command, "--noise", "0.3", "--seed", "5", "--out", str(tmp_path / "data")]) == 0
    episodes = open_episodes("minari", str(tmp_path / "data"), layout)
    recorder = TrackingTask(layout)
    for index in range(3):
        steps = episodes.read(index)
        actions = iter(steps.actions)
        (again,) = recorder.record(lambda obs, actions=actions: next(actions)[None], range(index, index + 1), 5)
        assert again.num_steps == len(steps.obs)
        assert np.array_equal(again.obs[:-1].astype(np.float32), steps.obs)
        assert again.clip == episodes.infos[index].clip


def test_noise_changes_the_executed_action_only(task):
    (calm,) = task.record(zeros, range(1), 0)
    (pushed,) = task.record(zeros, range(1), 0, np.full(21, 0.5))
    assert not calm.executed.any()
    assert not pushed.clean.any()
    assert pushed.executed.std() == pytest.approx(0.5, rel=0.2)
    assert calm.terminated
    assert not calm.success[-1]
    assert calm.success[:-1].all()


def test_evaluations_and_demonstrations_have_different_starts(task, layout):
    recorded = list(task.record(zeros, range(4), 5))
    starts = [task.start("train", 5, index) for index in range(4)]
    shown = demonstrate(layout, num_clips=32, repetitions=1, seed=5)
    others = [*LayoutAdapter(layout).obs(Bodies(starts)), *(shown.read(index).obs[0] for index in range(4))]
    assert not any(np.allclose(one.obs[0], other, atol=1e-4) for one in recorded for other in others)
    assert [one.clip for one in recorded] == [start.clip.name for start in starts]
