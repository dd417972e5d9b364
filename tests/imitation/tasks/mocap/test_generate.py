import h5py
import numpy as np
import pytest

from body_transformer.experiment import load_experiment
from body_transformer.imitation.tasks.mocap import generate as generate_module
from body_transformer.imitation.tasks.mocap.controller import BalanceController
from body_transformer.imitation.tasks.mocap.generate import RolloutSettings, generate
from body_transformer.imitation.tasks.mocap.recording import DISCOUNT, record, values_and_advantages
from body_transformer.imitation.tasks.mocap.snippets import Snippet

from .conftest import whole

SETTINGS = RolloutSettings(start_rollouts=2, random_rollouts=1, max_steps=50)


@pytest.fixture(scope="module")
def folder(clips_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rollouts")
    assert list(generate(clips_file, folder, settings=SETTINGS)) == ["CMU_900_01", "CMU_900_02"]
    return folder


def test_there_is_one_file_per_clip_and_one_group_per_snippet(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["CMU_900_01.hdf5", "CMU_900_02.hdf5"]
    others = {"n_rsi_rollouts", "n_start_rollouts", "observable_indices", "ref_steps", "stats"}
    with h5py.File(folder / "CMU_900_01.hdf5") as file:
        assert set(file) == {"CMU_900_01-0-40", *others}
        assert (int(file["n_start_rollouts"][()]), int(file["n_rsi_rollouts"][()])) == (2, 1)
        assert file["ref_steps"][:].tolist() == [1, 2, 3, 4, 5]
    with h5py.File(folder / "CMU_900_02.hdf5") as file:
        assert set(file) == {"CMU_900_02-0-46", "CMU_900_02-13-60", *others}


def test_an_episode_has_mocapacts_arrays(folder):
    with h5py.File(folder / "CMU_900_01.hdf5") as file:
        group = file["CMU_900_01-0-40"]
        assert set(group) == {"0", "1", "2", "early_termination", "start_metrics", "rsi_metrics"}
        for index in "012":
            episode = group[index]
            steps = len(episode["actions"])
            shapes = {name: episode[name].shape for name in episode if name != "observations"}
            assert shapes == {
                "actions": (steps, 56),
                "mean_actions": (steps, 56),
                "rewards": (steps,),
                "values": (steps,),
                "advantages": (steps,),
            }
            assert episode["observations/proprioceptive"].shape == (steps + 1, 2868)
            assert {array.dtype for array in (episode["actions"], episode["observations/proprioceptive"])} == {
                np.dtype(np.float32)
            }
            assert np.abs(episode["actions"]).max() <= 1
            assert 0.05 < np.std(episode["actions"][:] - episode["mean_actions"][:]) < 0.11


def test_metrics_are_returns_and_lengths_of_the_rollouts(folder):
    with h5py.File(folder / "CMU_900_01.hdf5") as file:
        group = file["CMU_900_01-0-40"]
        failed = group["early_termination"][:]
        assert failed.dtype == bool
        assert failed.shape == (3,)
        metrics = group["start_metrics"]
        for index in range(2):
            rewards = group[f"{index}/rewards"][:]
            assert metrics["episode_lengths"][index] == len(rewards)
            assert metrics["norm_episode_lengths"][index] == pytest.approx(len(rewards) / 34)
            assert metrics["episode_returns"][index] == pytest.approx(rewards.sum(), rel=1e-5)
            assert metrics["norm_episode_returns"][index] == pytest.approx(rewards.sum() / 34, rel=1e-5)
            assert failed[index] == (len(rewards) < 34)
        assert group["rsi_metrics/episode_lengths"].shape == (1,)
        assert 9 < group["rsi_metrics/episode_lengths"][0] / group["rsi_metrics/norm_episode_lengths"][0] <= 34.01


def test_the_indices_are_those_of_the_experiments_layout(folder):
    with h5py.File(folder / "CMU_900_01.hdf5") as file:
        walker = file["observable_indices/walker"]
        for name, place in load_experiment("mocapact").layout().obs_slices.items():
            assert walker[name][:].tolist() == list(range(place.start, place.stop))


def test_the_statistics_cover_the_whole_file(folder):
    with h5py.File(folder / "CMU_900_02.hdf5") as file:
        episodes = [file[s][str(k)] for s in file if s.startswith("CMU") for k in range(3)]
        obs = np.concatenate([episode["observations/proprioceptive"][:] for episode in episodes]).astype(np.float64)
        actions = np.concatenate([episode["actions"][:] for episode in episodes]).astype(np.float64)
        assert int(file["stats/count"][()]) == len(obs)
        np.testing.assert_allclose(file["stats/proprio_mean"][:], obs.mean(0), atol=1e-5)
        np.testing.assert_allclose(file["stats/proprio_var"][:], obs.var(0), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(file["stats/act_mean"][:], actions.mean(0), atol=1e-5)
        np.testing.assert_allclose(file["stats/act_var"][:], actions.var(0), rtol=1e-3, atol=1e-5)


def test_the_controller_tracks_a_standing_person_to_the_end_where_zero_action_falls(env):
    controller = BalanceController(env)
    snippet = Snippet("CMU_900_01", 0, 40)
    rng = np.random.default_rng(0)
    held = record(env, controller, snippet, 0, 0.0, rng)
    fell = record(env, lambda: np.zeros(56), snippet, 0, 0.0, rng)
    assert not held.failed
    assert len(held.rewards) == held.max_steps == 34
    assert fell.failed
    assert len(fell.obs) == len(fell.rewards) + 1 < 34


def test_the_controller_tracks_a_real_clip_of_a_standing_person(cmu_clips_file):
    from body_transformer.imitation.tasks.mocap.environment import MocapEnv

    env = MocapEnv(cmu_clips_file)
    held = record(env, BalanceController(env), whole(env, "CMU_132_51"), 0, 0.1, np.random.default_rng(0))
    assert not held.failed


def test_values_are_the_mean_return_to_go_and_one_rollout_alone_has_no_advantage(env):
    rng = np.random.default_rng(0)
    snippet = Snippet("CMU_900_01", 0, 40)
    one, two = (record(env, BalanceController(env), snippet, start, 0.1, rng) for start in (0, 3))
    values, advantages = values_and_advantages([one])
    to_go = sum(reward * DISCOUNT**step for step, reward in enumerate(one.rewards))
    assert values[0][0] == pytest.approx(to_go, rel=1e-5)
    np.testing.assert_allclose(advantages[0], 0, atol=1e-5)
    both, _ = values_and_advantages([one, two])
    alone, _ = values_and_advantages([two])
    np.testing.assert_allclose(both[1][0], (values[0][3] + alone[0][0]) / 2, rtol=1e-5)


def test_existing_files_are_kept_and_other_settings_refused(folder, clips_file, tmp_path):
    before = (folder / "CMU_900_01.hdf5").stat().st_mtime_ns
    assert list(generate(clips_file, folder, ["CMU_900_01"], SETTINGS)) == []
    assert (folder / "CMU_900_01.hdf5").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="made with other settings"):
        list(generate(clips_file, folder, ["CMU_900_01"], RolloutSettings(start_rollouts=1)))


def test_a_clips_rollouts_do_not_depend_on_other_clips(folder, clips_file, tmp_path):
    list(generate(clips_file, tmp_path, ["CMU_900_02"], SETTINGS))
    with h5py.File(folder / "CMU_900_02.hdf5") as one, h5py.File(tmp_path / "CMU_900_02.hdf5") as two:
        for name in ("CMU_900_02-13-60/2/actions", "stats/proprio_mean"):
            np.testing.assert_array_equal(one[name], two[name])


def test_the_command_prints_how_many_rollouts_reached_the_end(clips_file, tmp_path, capsys):
    generate_module.main(
        [str(clips_file), str(tmp_path), "--clips", "CMU_900_01", "--start-rollouts", "1", "--random-rollouts", "0"]
    )
    printed = capsys.readouterr().out
    assert "wrote 1 files" in printed
    assert "from the start: 1 rollouts, 100 % reached" in printed
    assert "random" not in printed


@pytest.mark.parametrize(
    "wrong",
    [{"start_rollouts": 0, "random_rollouts": 0}, {"noise_std": -1.0}, {"max_steps": 10}, {"start_rollouts": -1}],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        RolloutSettings(**wrong)
