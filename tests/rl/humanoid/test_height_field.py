"""benchmarks/height_field.py: flat ground in four implementations."""

from contextlib import closing

import pytest

pytest.importorskip("mjlab")

from body_transformer import Policy, pretrained
from body_transformer.rl.envs.cpu import CpuEnv
from body_transformer.rl.evaluate import mean_action, rollouts


def test_only_the_cells_of_a_height_field_make_a_running_robot_fall(benchmark_script):
    height_field = benchmark_script("height_field")
    act = mean_action(Policy.load(pretrained.path(height_field.TASK)).eval())
    tilted, lengths = {}, {}
    for name, cfg in height_field.grounds(num_envs=1, seed=1).items():
        with closing(CpuEnv(cfg, num_threads=1)) as env:
            watch = height_field.Watch(env)
            lengths[name] = int(rollouts(act, env, 1, watch).values["length"])
        assert watch.num_contacts > 100
        tilted[name] = watch.share
    plane, coarse, fine, feelers = tilted.values()
    assert plane == feelers == 0
    assert fine > 0.2 > coarse
    assert min(lengths, key=lengths.__getitem__) == "height field, cells of 0.1 m"
