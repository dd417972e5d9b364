"""Board and cylinder: their bodies, and that they roll."""

import mujoco
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.humanoid import board
from body_transformer.rl.humanoid.still import scene_model
from body_transformer.rl.humanoid.task import humanoids

BOARD_Q, CYLINDER_Q = slice(28, 35), slice(35, 42)
BOARD_V, CYLINDER_V = slice(27, 33), slice(33, 39)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scene_model(board.cfg(1, 0))


def test_board_and_cylinder_weigh_what_the_authors_do(model):
    assert model.body("board/board").mass[0] == pytest.approx(12.0)
    assert model.geom("board/board").size.tolist() == pytest.approx([0.2, 0.3, 0.025])
    cylinder = model.body("cylinder/cylinder")
    assert cylinder.mass[0] == pytest.approx(12.566, abs=1e-3)
    # m r^2 / 2 about the axis, m (3 r^2 + l^2) / 12 across
    assert cylinder.inertia.tolist() == pytest.approx([0.06283, 0.19897, 0.19897], abs=1e-4)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    inertial = data.body("cylinder/cylinder").ximat.reshape(3, 3)
    assert abs(inertial[0, 0]) == pytest.approx(1.0)  # the first axis is x


def test_both_begin_at_rest_one_on_the_other(env):
    made = env("humanoid-board")
    qpos = humanoids(made).memory.qpos
    for _ in range(2):
        assert torch.allclose(qpos[:, BOARD_Q], torch.tensor([0, 0, 0.225, 1, 0, 0, 0]))
        assert torch.allclose(qpos[:, CYLINDER_Q], torch.tensor([0, 0, 0.1, 1, 0, 0, 0]))
        for _ in range(5):
            made.step(torch.zeros(8, 21))
        made.episode_length_buf[:] = 999
        made.step(torch.zeros(8, 21))


def far_above(made) -> None:
    """Robots high in the air: board and cylinder are alone for a second."""
    humanoids(made).state.torso_pos[:, 2] = 20.0


def test_the_board_rolls_on_the_cylinder_when_pushed(env):
    made = env("humanoid-board")
    far_above(made)
    memory = humanoids(made).memory
    memory.qvel[:, BOARD_V][:, 1] = 0.5
    for _ in range(6):
        made.step(torch.zeros(8, 21))
    of_board, of_cylinder = memory.qvel[:, BOARD_V], memory.qvel[:, CYLINDER_V]
    assert (of_cylinder[:, 1] > 0.1).all()
    # without slipping the cylinder turns by v / r, and the board goes twice as fast as the cylinder
    torch.testing.assert_close(of_cylinder[:, 3], -of_cylinder[:, 1] / 0.1, rtol=0.05, atol=0.05)
    torch.testing.assert_close(of_board[:, 1], 2 * of_cylinder[:, 1], rtol=0.1, atol=0.02)
    assert (memory.qpos[:, CYLINDER_Q][:, 1] > 0.01).all()


def test_the_board_neither_sinks_into_the_cylinder_nor_tilts_by_itself(env):
    made = env("humanoid-board")
    far_above(made)
    for _ in range(30):
        made.step(torch.zeros(8, 21))
    pose = humanoids(made).memory.qpos[:, BOARD_Q]
    assert ((pose[:, 2] - 0.225).abs() < 1.5e-3).all()
    assert (pose[:, 4:6].abs() < 5e-3).all()


def test_who_sinks_below_1_3_m_has_died_whatever_it_touches(env):
    made = env("humanoid-board")
    state = humanoids(made).state
    state.torso_pos[0, 2] = 1.25
    _, reward, died, *_ = made.step(torch.zeros(8, 21))
    assert died.tolist() == [True] + [False] * 7
    assert reward[0] == -1
    assert ((reward[1:] > 1.5) & (reward[1:] < 3.5)).all()


def test_standing_at_the_origin_the_heading_is_that_of_the_start(env):
    """The authors measure it towards the origin; there it would be 0, and a step worth 0.5 less."""
    made = env("humanoid-board")
    robots = humanoids(made)
    robots.state.previous_xy.copy_(robots.state.torso_pos[:, :2])
    values = {name: term() for name, term in robots.reward_terms().items()}
    assert (values["heading"] == 1).all()
    assert (values["progress"] == 0).all()
    weights = {
        "progress": 1.0,
        "alive": 2.0,
        "upright": 0.1,
        "heading": 0.5,
        "effort": 0.0,
        "energy": 0.0,
        "limits": 0.0,
    }
    total = robots.reward(torch.zeros(8, dtype=torch.bool), weights | {"death": -1.0})
    torch.testing.assert_close(total, torch.full((8,), 2.6))
