"""Episodes of the tracking task as a data set."""

import numpy as np
import pytest

pytest.importorskip("minari", reason="needs the extra 'imitation'")

from body_transformer import Policy
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.readers import open_episodes
from body_transformer.imitation.tasks.tracking.bodies import Bodies
from body_transformer.imitation.tasks.tracking.demonstrations import demonstrate
from body_transformer.imitation.tasks.tracking.observation import LayoutAdapter
from body_transformer.imitation.tasks.tracking.task import TrackingTask

LAYOUT = load_experiment("demo").layout()


def test_what_is_collected_is_read_back_and_can_be_played_again(tmp_path):
    Policy(LAYOUT, load_experiment("demo").policy_config("mlp")).save(tmp_path / "policy")
    command = [
        "collect",
        "demo",
        "--policy",
        str(tmp_path / "policy"),
        "--episodes",
        "3",
        "--noise",
        "0.3",
        "--seed",
        "5",
    ]
    assert main([*command, "--out", str(tmp_path / "data")]) == 0
    episodes = open_episodes("minari", str(tmp_path / "data"), LAYOUT)
    recorder = TrackingTask(LAYOUT)
    for index in range(3):
        steps = episodes.read(index)
        actions = iter(steps.actions)
        (again,) = recorder.record(lambda obs, actions=actions: next(actions)[None], range(index, index + 1), 5)
        assert again.num_steps == len(steps.obs)
        assert np.array_equal(again.obs[:-1].astype(np.float32), steps.obs)
        assert again.clip == episodes.infos[index].clip


def test_noise_pushes_the_body_and_leaves_the_clean_action(tmp_path):
    recorder = TrackingTask(LAYOUT)
    still = np.zeros((1, LAYOUT.action_dim), dtype=np.float32)
    (calm,) = recorder.record(lambda obs: still, range(1), 0)
    (pushed,) = recorder.record(lambda obs: still, range(1), 0, np.full(LAYOUT.action_dim, 0.5))
    assert not calm.executed.any()
    assert not pushed.clean.any()
    assert pushed.executed.std() == pytest.approx(0.5, rel=0.2)
    assert calm.terminated
    assert not calm.success[-1]
    assert calm.success[:-1].all()


def test_nobody_is_tried_out_on_the_starts_of_demonstrations():
    recorder, still = TrackingTask(LAYOUT), np.zeros((1, LAYOUT.action_dim), dtype=np.float32)
    recorded = [episode.obs[0] for episode in recorder.record(lambda obs: still, range(4), 5)]
    task = TrackingTask(LAYOUT)
    tried = [LayoutAdapter(LAYOUT).obs(Bodies([task.start("train", 5, index)]))[0] for index in range(4)]
    shown = demonstrate(num_clips=32, repetitions=1, seed=5, layout=LAYOUT)
    others = [*tried, *(shown.read(index).obs[0] for index in range(4))]
    assert not any(np.allclose(one, other, atol=1e-4) for one in recorded for other in others)
    assert [episode.clip for episode in recorder.record(lambda obs: still, range(4), 5)] == [
        task.start("train", 5, index).clip.name for index in range(4)
    ]
