"""Uneven ground: planes under feelers in both simulators, compared with MuJoCo's height field."""

import copy

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.envs.cpu import CpuEnv
from body_transformer.rl.envs.mjlab import terms_of
from body_transformer.rl.ground import FAR_BELOW, FEELER, add_field, plane_ids, put_planes
from body_transformer.rl.humanoid import hill
from body_transformer.rl.humanoid.ground import FaceTable
from body_transformer.rl.humanoid.hill import on_height_field
from body_transformer.rl.registry import make_env_cfg

from ..environments import random_actions

GROUND = hill.ground(seed=0)
FOOT_RADIUS, FOOT_HALF = 0.027, 0.1055
STILL = torch.zeros(8, 21)


@pytest.fixture(scope="module")
def faces():
    return FaceTable(GROUND)


def height(faces: FaceTable, xy: np.ndarray) -> np.ndarray:
    """Return the height of the ground at xy, [..., 2] -> [...]."""
    places = torch.tensor(xy, dtype=torch.float32)
    normal, offset = faces.under(places)
    return ((offset[..., 0] - (normal[..., :2] * places).sum(-1)) / normal[..., 2]).numpy()


def anywhere(count: int, seed: int = 0) -> np.ndarray:
    """[count, 2]: on the waves; every tenth within 10 cm of the border of a tile."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform([1, -79], [79, 79], (count, 2))
    xy[::10, 0] = 8 * rng.integers(1, 10, len(xy[::10])) + rng.uniform(-0.1, 0.1, len(xy[::10]))
    return xy


def body_on_the_field(**geom) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Return a scene of MuJoCo's height field and a free body of one geom."""
    spec = mujoco.MjSpec()
    add_field(spec, GROUND)
    body = spec.worldbody.add_body(pos=[0, 0, 9])
    body.add_freejoint()
    body.add_geom(**geom)
    model = spec.compile()
    return model, mujoco.MjData(model)


def touch(model: mujoco.MjModel, data: mujoco.MjData, pos, quat=(1, 0, 0, 0)) -> tuple[float, np.ndarray] | None:
    """Return the depth and the normal of the deepest contact; None in the air."""
    data.qpos = [*pos, *quat]
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_collision(model, data)
    if not data.ncon:
        return None
    deepest = data.contact[int(np.argmin(data.contact.dist))]
    return -deepest.dist, deepest.frame[:3]


# -- the faces of the ground -------------------------------------------------------------------------------------------


def test_faces_are_those_of_mujocos_height_field(faces):
    model, data = body_on_the_field(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.01, 0, 0])
    mujoco.mj_forward(model, data)
    places, geom = anywhere(400), np.zeros(1, dtype=np.int32)
    rays = [5 - mujoco.mj_ray(model, data, [*xy, 5.0], [0, 0, -1], None, 1, -1, geom) for xy in places]
    np.testing.assert_allclose(height(faces, places), rays, atol=2e-5)


def test_the_ground_continues_beyond_its_end_and_under_places_that_are_not_finite(faces):
    normal, offset = faces.under(torch.tensor([[500.0, 0.0], [-500.0, 500.0], [torch.nan, torch.inf]]))
    assert torch.equal(normal, torch.tensor([[0.0, 0.0, 1.0]] * 3))
    assert not offset.any()


@pytest.mark.parametrize("radius", [0.027, 0.09])
def test_a_sphere_touches_its_plane_as_it_touches_mujocos_height_field(faces, radius):
    """Seen for the radius of feet and of the head: 95 % of the depths within 2e-6 m and 0.15 mm, 99 % within 0.6 mm and
    5.2 mm. Larger differences lie at borders of tiles, and at edges where a sphere touches both sides."""
    model, data = body_on_the_field(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[radius, 0, 0])
    rng, apart, angles = np.random.default_rng(1), [], []
    for xy in anywhere(800):
        normal = faces.under(torch.tensor(xy, dtype=torch.float32))[0].numpy()
        centre = np.array([*xy, height(faces, xy) + radius / normal[2] + rng.uniform(-0.008, 0.0)])
        point, normal = (found.numpy() for found in faces.nearest(torch.tensor(centre).float(), torch.tensor(radius)))
        found = touch(model, data, centre)
        if found is not None:
            apart.append(abs(radius - (centre - point) @ normal - found[0]))
            angles.append(np.degrees(np.arccos(np.clip(normal @ found[1], -1, 1))))
    assert len(apart) > 750
    assert np.median(apart) < 1e-5
    assert np.quantile(apart, 0.95) < 5e-4
    assert np.quantile(apart, 0.99) < 0.1 * radius
    assert np.median(angles) < 0.1
    assert np.quantile(angles, 0.95) < 10


def test_a_foot_is_as_deep_in_its_planes_as_in_mujocos_height_field(faces):
    """A capsule against four spheres along its axis. Seen: half within 1e-6 m, 90 % within 0.8 mm, 99 % 5 mm."""
    ends = [-FOOT_HALF, 0, 0, FOOT_HALF, 0, 0]
    model, data = body_on_the_field(type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=ends, size=[FOOT_RADIUS, 0, 0])
    rng, apart = np.random.default_rng(2), []
    for xy in anywhere(800):
        yaw, roll = rng.uniform(0, 2 * np.pi), rng.normal(0, 0.05)
        ahead = np.array([np.cos(yaw), np.sin(yaw)])
        heel, toe = height(faces, np.array([xy - FOOT_HALF * ahead, xy + FOOT_HALF * ahead]))
        pitch = np.arctan2(toe - heel, 2 * FOOT_HALF) + roll
        axis = np.array([*(np.cos(pitch) * ahead), np.sin(pitch)])
        quat, turn = np.zeros(4), np.zeros(4)
        mujoco.mju_axisAngle2Quat(quat, [0, 0, 1], yaw)
        mujoco.mju_axisAngle2Quat(turn, [0, 1, 0], -pitch)
        mujoco.mju_mulQuat(quat, quat.copy(), turn)
        along = np.linspace(-FOOT_HALF, FOOT_HALF, 61)[:, None] * axis
        z = (height(faces, xy + along[:, :2]) - along[:, 2]).max() + FOOT_RADIUS + rng.uniform(-0.008, 0.0)
        centres = np.array([*xy, z]) + along[::20]
        points, normals = faces.nearest(torch.tensor(centres).float(), torch.tensor(FOOT_RADIUS))
        depth = FOOT_RADIUS - ((centres - points.numpy()) * normals.numpy()).sum(-1).min()
        found = touch(model, data, [*xy, z], quat)
        if found is not None:
            apart.append(abs(depth - found[0]))
    assert len(apart) > 700
    assert np.median(apart) < 1e-4
    assert np.quantile(apart, 0.9) < 1.5e-3
    assert np.quantile(apart, 0.99) < 6e-3


# -- planes in the simulator -------------------------------------------------------------------------------------------


def test_a_contact_with_a_plane_is_as_stiff_and_as_rough_as_one_with_the_height_field(env):
    model = env("humanoid-hill").sim.mj_model
    plain = CpuEnv(on_height_field(make_env_cfg("humanoid-hill", 1, 0)), num_threads=1)
    data = mujoco.MjData(plain.world.model)
    data.qpos = plain.robots.starts.qpos[0].numpy()
    data.qpos[2] -= 0.1
    mujoco.mj_forward(plain.world.model, data)
    plain.close()
    assert plain.world.model.npair == 0
    assert data.ncon > 0
    for contact in data.contact:
        for k in range(model.npair):
            assert contact.dim == model.pair_dim[k] == 3
            np.testing.assert_allclose(contact.friction, model.pair_friction[k])
            np.testing.assert_allclose(contact.solref, model.pair_solref[k])
            np.testing.assert_allclose(contact.solimp, model.pair_solimp[k])


def test_feelers_have_no_mass_and_every_geom_has_some(env):
    hilly, flat = (env(name).sim.mj_model for name in ("humanoid-hill", "humanoid-mod"))
    for body in range(1, flat.nbody):
        name = flat.body(body).name
        if name.startswith("robot/"):
            np.testing.assert_allclose(hilly.body(name).mass, flat.body(body).mass)
            np.testing.assert_allclose(hilly.body(name).inertia, flat.body(body).inertia)
    per_body = [hilly.body(b).name for b in hilly.geom_bodyid[[i for i in range(hilly.ngeom) if is_feeler(hilly, i)]]]
    assert hilly.npair == len(per_body) == 43
    assert per_body.count("robot/right_foot") == 8
    assert per_body.count("robot/head") == 1


def is_feeler(model: mujoco.MjModel, geom: int) -> bool:
    return model.geom(geom).name.startswith(FEELER)


def test_a_plane_lies_where_its_feeler_is_when_the_physics_meets_it(env, faces):
    """It is laid under the predicted feeler. Seen with robots at 3 m/s: 99 % within 0.07 mm, at worst 0.8 mm."""
    made = env("humanoid-hill")
    robots, model = terms_of(made).robots, made.sim.mj_model
    robots.state.root.vel[:, 0] = 3.0
    feelers = [k for k in range(model.ngeom) if is_feeler(model, k)]
    radius = torch.tensor(model.geom_size[feelers, :1], dtype=torch.float32)
    apart = []
    for action in random_actions(40, seed=0, scale=0.3):
        met = ~made.step(action)[2]
        centre, planes = made.sim.data.geom_xpos[:, feelers], robots.planes
        have = ((centre - planes.point) * planes.normal).sum(-1)
        point, normal = faces.nearest(centre, radius)
        expected = ((centre - point) * normal).sum(-1)
        near = met[:, None] & ((expected - radius[:, 0]).abs() < 0.01)
        apart += (have - expected)[near].abs().tolist()
    assert len(apart) > 200
    assert np.quantile(apart, 0.9) < 1e-4
    assert np.quantile(apart, 0.99) < 1e-3


def test_physics_leaves_the_planes_where_they_were_laid(env):
    made = env("humanoid-hill")
    planes = terms_of(made).robots.planes
    for _ in range(12):
        made.step(STILL)
    point, normal = planes.point.clone(), planes.normal.clone()
    for physics in (made.sim.step, made.sim.forward):
        physics()
        assert torch.equal(planes.point, point)
        assert torch.equal(planes.normal, normal)
    assert (point[..., 2] > -1).all()


@pytest.mark.parametrize("normal", [(0, 0, 1), (0.6, 0, 0.8), (-0.36, 0.48, 0.8), (0, 0, 0)])
def test_a_plane_in_a_model_of_plain_mujoco_has_the_given_point_and_normal(env, normal):
    """A normal of zeros belongs to a plane that was never laid, which stays upright."""
    model = copy.copy(env("humanoid-hill").sim.mj_model)
    mine, data = plane_ids(model, 43), mujoco.MjData(model)
    point = np.arange(43 * 3).reshape(43, 3) / 10.0
    put_planes(model, mine, point, np.tile(np.array(normal, dtype=float), (43, 1)))
    mujoco.mj_kinematics(model, data)
    np.testing.assert_allclose(data.geom_xpos[mine], point)
    expected = normal if any(normal) else (0, 0, 1)
    np.testing.assert_allclose(data.geom_xmat[mine].reshape(-1, 3, 3)[:, :, 2], np.tile(expected, (43, 1)), atol=1e-12)


@pytest.mark.parametrize("fast", [True, False])
def test_a_fresh_episode_keeps_nothing_of_the_previous_ground(env, fast):
    made = env("humanoid-hill", fast)
    robots = terms_of(made).robots
    for _ in range(15):
        made.step(STILL)
    assert (robots.state.contact_force[:, [6, 9]].sum((1, 2)) > 0).any()
    made.episode_length_buf[:4] = 999
    _, _, died, late, _ = made.step(STILL)
    fresh = died | late
    assert fresh[:4].all()
    assert not fresh.all()
    assert (robots.planes.point[fresh][..., 2] == FAR_BELOW).all()
    assert (robots.planes.point[~fresh][..., 2] > -1).all()
    z = robots.state.root.pos[:, 2].clone()
    for steps in (1, 2, 3):  # in free fall
        made.step(STILL)
        fallen = 9.81 / 120**2 * steps * (2 * steps + 1)
        torch.testing.assert_close(
            (z - robots.state.root.pos[:, 2])[fresh], torch.full((int(fresh.sum()),), fallen), atol=2e-3, rtol=0
        )  # limbs swing, too
        assert not robots.state.contact_force[fresh].any()
    assert (robots.planes.point[..., 2] > -1).all()


# -- robots ------------------------------------------------------------------------------------------------------------


def test_robots_fall_as_on_mujocos_height_field(new_env):
    """64 robots land, stand and fall, without a torque. Seen: torsos 0.57 mm apart (median) after 11 steps, 6 % of the
    deaths more than 3 steps apart; with MuJoCo Warp's own height field 1.03 mm and 17 %."""
    theirs, ours = new_env("humanoid-hill", 64), CpuEnv(on_height_field(make_env_cfg("humanoid-hill", 64, 0)))
    theirs.reset(seed=3)
    theirs.episode_length_buf.zero_()
    ours.reset(seed=3)
    deaths = torch.full((2, 64), 60)
    for step in range(60):
        ends = [theirs.step(torch.zeros(64, 21))[2], ours.step(torch.zeros(64, 21))[2]]
        for found, died in zip(deaths, ends, strict=True):
            found[died] = found[died].clamp_max(step)
        if step == 10:
            apart = (terms_of(theirs).robots.state.root.pos - ours.robots.state.root.pos.float()).norm(dim=1)
    ours.close()
    assert apart.median() < 8e-4
    assert ((deaths[0] - deaths[1]).abs() > 3).float().mean() < 0.1
    assert deaths[1].float().mean() > 30


def test_no_robot_flies_apart(new_env, monkeypatch):
    """64 robots, 300 steps of random actions. Seen: 61 rad/s; with MuJoCo Warp's height field 10,764,609 rad/s."""
    made = new_env("humanoid-hill", 64)
    made.reset(seed=0)
    joint_vel, physics, fastest = terms_of(made).robots.state.joint_vel, made.sim.step, []

    def step():
        physics()
        fastest.append(float(joint_vel.abs().max()))

    monkeypatch.setattr(made.sim, "step", step)
    for action in torch.randn(300, 64, 21, generator=torch.Generator().manual_seed(1)):
        obs, reward, *_ = made.step(action)
        assert obs["actor"].isfinite().all()
        assert (reward > -10).all()
    assert len(fastest) == 600
    assert max(fastest) < 100
    assert made.broken == 0
    assert not made.sim.wp_data.overflow.numpy().any()  # all contacts had room
