"""a1-walk in plain MuJoCo: the same robots and steps as in MuJoCo Warp."""

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.envs.cpu import CpuEnv, scene_model
from body_transformer.rl.envs.mjlab import terms_of

from ..environments import task_cfg


def lay_level(planes) -> None:
    """Lay all planes on flat ground."""
    planes.point.zero_()
    planes.normal.copy_(torch.tensor([0.0, 0.0, 1.0]))


@pytest.mark.parametrize("flat", [True, False])
def test_a_step_is_that_of_mujoco_warp_for_each_robot(env, monkeypatch, flat):
    """Seen: 9 of 10 steps within 4e-6 on either ground, at worst 4e-4 where a foot touches the ground in only one
    simulator."""
    warp = env("a1-walk", flat=flat, noise=False)
    ours = CpuEnv(task_cfg("a1-walk", flat=flat, noise=False), num_threads=2)
    if flat:
        monkeypatch.setattr(ours.robots.planes, "lay", lambda *state: lay_level(ours.robots.planes))
    theirs = terms_of(warp).robots
    first, _ = ours.reset(seed=0)
    torch.testing.assert_close(first["actor"], warp.get_observations()["actor"], atol=1e-6, rtol=0)
    generator = torch.Generator().manual_seed(0)
    off, standing = [], []
    for _ in range(40):
        for name in ("qpos", "qvel", "qacc_warmstart"):
            getattr(ours.world, name).copy_(getattr(theirs.world, name))
        ours.going.fill_(True)
        action = 0.3 * torch.randn(8, 12, generator=generator)
        (seen, _, died, late, _), (other, *_) = warp.step(action), ours.step(action)
        living = ~(died | late)
        off += (seen["actor"] - other["actor"])[living, :36].abs().amax(1).tolist()
        standing += theirs.state.on_ground[living].any(1).tolist()
    ours.close()
    assert np.mean(standing) > 0.4
    assert np.quantile(np.array(off)[standing], 0.9) < 2e-5
    assert np.quantile(np.array(off)[~np.array(standing)], 0.9) < 2e-5


def test_robots_differ_in_plain_mujoco_too():
    env = CpuEnv(task_cfg("a1-walk", 3), num_threads=1)
    env.close()
    model, parameters = env.world.model, env.robots.state.parameters
    trunk = model.body("robot/trunk").id
    for k, model_fields in enumerate(env.robots._model_fields):
        assert model_fields["body_mass"][trunk] == pytest.approx(4.714 + float(parameters.added_mass[k]))
        assert model_fields["pair_friction"][:, :2] == pytest.approx((1 + float(parameters.friction[k])) / 2)
        assert model_fields["body_subtreemass"][trunk] == pytest.approx(
            12.454 + float(parameters.added_mass[k]), abs=1e-3
        )
    plain = scene_model(task_cfg("a1-walk", 3))
    assert model.body_mass[trunk] == plain.body_mass[trunk] == pytest.approx(4.714)
    assert model.stat.meaninertia == plain.stat.meaninertia, "the solver of every thread has the same tolerance"
    assert np.array_equal(model.dof_M0, plain.dof_M0)
