"""The ground: its statistics, and the tangent planes that replace it in the physics."""

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.a1.ground import GridFaces
from body_transformer.rl.a1.terrain import START_ABOVE, Terrain, gradient_noise, heights, place
from body_transformer.rl.ground import add_field, part_around

SMALL = Terrain(0, num_tracks=(6, 4), scale=(0.1, 0.15))


def tracks(terrain: Terrain) -> np.ndarray:
    """Return the heights of all tracks, [tracks along x, tracks along y, heights along x, heights along y]."""
    edge, (nx, ny) = round(terrain.border / terrain.grid), terrain.num_tracks
    px, py = (round(size / terrain.grid) for size in terrain.track)
    inner = heights(terrain)[edge : edge + nx * px, edge : edge + ny * py]
    return inner.reshape(nx, px, ny, py).swapaxes(1, 2)


def test_the_ground_has_1000_tracks_of_which_about_29_percent_are_flat():
    terrain = Terrain(3)
    assert terrain.shape == (2001, 3601)
    assert (terrain.low, terrain.high) == ((-5.0, -45.0), (45.0, 45.0))
    scales = terrain.scales()
    rough = scales[scales > 0]
    assert scales.shape == (20, 50)
    assert abs((scales == 0).mean() - 2 / 7) < 0.05
    assert rough.min() >= 0.1
    assert rough.max() <= 0.15
    spans = np.ptp(tracks(terrain), axis=(2, 3))
    assert (spans[scales == 0] == 0).all()
    ratio = spans[scales > 0] / rough
    assert 0.7 < ratio.mean() < 1.1  # noise spans about its scale
    assert np.abs(heights(terrain)[:, :190]).max() < 0.08 * 0.625  # the border's scale is 0.08, octaves sum to 1.25


def test_another_seed_is_another_ground_and_the_same_seed_the_same():
    first, again, other = (heights(Terrain(seed, num_tracks=(2, 2))) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).mean() > 0.5


def test_noise_is_zero_at_the_corners_of_its_cells_and_smooth_between():
    noise = gradient_noise((401, 401), samples=20, rng=np.random.default_rng(0))
    assert np.abs(noise[::20, ::20]).max() < 1e-12
    assert 0.2 < noise.std() < 0.45
    assert abs(noise.mean()) < 0.05
    assert np.abs(np.diff(noise, axis=0)).max() < 0.2  # of a span of about 2, in a twentieth of a cell
    assert np.abs(noise).max() <= 1


def test_a_part_of_the_ground_lies_around_the_given_places():
    ground = Terrain(3, num_tracks=(2, 2)).ground
    part = part_around(ground, np.array([[1.0, 0.5], [2.0, -0.5]]), margin=0.5)
    assert part.low == pytest.approx((0.5, -1.0))
    assert part.heights().shape == (81, 81)  # 2 m at 25 mm
    first = np.round((np.array(part.low) - ground.low) / ground.grid).astype(int)
    np.testing.assert_array_equal(part.heights()[7, 11], ground.heights()[first[0] + 7, first[1] + 11])


def test_a_part_does_not_go_beyond_the_ground():
    ground = Terrain(3, num_tracks=(2, 2)).ground
    part = part_around(ground, np.array([[0.0, 0.0]]), margin=100.0)
    assert part.low == ground.low
    np.testing.assert_array_equal(part.heights(), ground.heights())


def test_starts_are_above_the_ground_in_the_first_part_of_a_track_with_10_m_ahead():
    terrain = Terrain(0)
    x, y, z = place(np.random.default_rng(0), 500, terrain).T
    into, aside = x % 2.0, (y + 40) % 1.6 - 0.8
    assert 0.2 <= into.min() < 0.25 < 0.55 < into.max() <= 0.6
    assert -0.25 <= aside.min() < -0.2 < 0.2 < aside.max() <= 0.25
    assert x.max() < 45 - 1 - 10
    assert len(np.unique((x // 2.0).astype(int))) == 17
    under, _ = GridFaces(terrain.ground).under(torch.tensor(x), torch.tensor(y))
    assert (z - under.numpy() >= START_ABOVE - 1e-6).all()


@pytest.fixture(scope="module")
def ball():
    """A sphere of a foot's size above the height field in plain MuJoCo."""
    spec = mujoco.MjSpec()
    add_field(spec, SMALL.ground)
    body = spec.worldbody.add_body(name="ball")
    body.add_freejoint()
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.02, 0, 0], contype=1, conaffinity=0)
    return spec.compile()


def test_height_and_normal_are_those_of_mujocos_height_field(ball):
    data = mujoco.MjData(ball)
    mujoco.mj_forward(ball, data)
    faces = GridFaces(SMALL.ground)
    hit, rng = np.zeros(1, np.int32), np.random.default_rng(0)
    for x, y in rng.uniform((0, -3), (12, 3), (200, 2)):
        down = mujoco.mj_ray(ball, data, np.array([x, y, 1.0]), np.array([0.0, 0.0, -1.0]), None, 1, 1, hit)
        height, normal = faces.under(torch.tensor([x]), torch.tensor([y]))
        assert height.item() == pytest.approx(1 - down, abs=2e-5)
        assert normal.norm().item() == pytest.approx(1, abs=1e-6)


def depth(model: mujoco.MjModel, data: mujoco.MjData, place: tuple[float, float, float]) -> float:
    data.qpos[:3] = place
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_collision(model, data)
    return float(data.contact.dist.min()) if data.ncon else 1.0


def test_a_foot_on_its_plane_is_as_deep_as_in_mujocos_height_field(ball):
    """A foot 1 mm deep in the height field is never deeper in the plane, and mostly as deep."""
    faces, data, rng = GridFaces(SMALL.ground), mujoco.MjData(ball), np.random.default_rng(0)
    places = []
    for x, y in rng.uniform((0, -3), (12, 3), (200, 2)):
        low = float(faces.under(torch.tensor([x]), torch.tensor([y]))[0])
        high = low + 0.1
        for _ in range(16):
            middle = (low + high) / 2
            low, high = (middle, high) if depth(ball, data, (x, y, middle)) < -1e-3 else (low, middle)
        places.append((x, y, low))
    centre = torch.tensor(places, dtype=torch.float32)
    point, normal = faces.nearest(centre, torch.full((len(places),), 0.02))
    off = ((centre - point) * normal).sum(-1) - 0.02 + 1e-3
    assert off.min() > -1e-4
    assert off.median() < 1e-4
    assert off.quantile(0.9) < 2e-3
    torch.testing.assert_close(normal.norm(dim=-1), torch.ones(len(places)))


def test_a_foot_in_the_ground_is_pushed_out_upwards():
    faces = GridFaces(SMALL.ground)
    centre = torch.tensor([[3.0, 1.0, -0.3], [float("nan"), 0.0, 0.0], [1e9, 0.0, 1.0]])
    _, normal = faces.nearest(centre, torch.full((3,), 0.02))
    assert normal[0, 2] > 0.3
