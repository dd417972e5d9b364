"""Board and cylinder: their bodies, their motion, and the critic's observations of them."""

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.envs.cpu import scene_model
from body_transformer.rl.envs.mjlab import task_of, terms_of
from body_transformer.rl.humanoid import terms
from body_transformer.rl.learner import model_layouts
from body_transformer.rl.registry import make_env_cfg

from ..environments import task_cfg

BOARD_Q, CYLINDER_Q = slice(28, 35), slice(35, 42)
BOARD_V, CYLINDER_V = slice(27, 33), slice(33, 39)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return scene_model(task_cfg("humanoid-board"))


def test_board_and_cylinder_have_the_authors_masses_and_inertias(model):
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


def test_the_board_starts_at_rest_on_the_cylinder(env):
    made = env("humanoid-board")
    qpos = terms_of(made).robots.world.qpos
    for _ in range(2):
        assert torch.allclose(qpos[:, BOARD_Q], torch.tensor([0, 0, 0.225, 1, 0, 0, 0]))
        assert torch.allclose(qpos[:, CYLINDER_Q], torch.tensor([0, 0, 0.1, 1, 0, 0, 0]))
        for _ in range(5):
            made.step(torch.zeros(8, 21))
        made.episode_length_buf[:] = 999
        made.step(torch.zeros(8, 21))


def far_above(made) -> None:
    """Lift the robots, so that board and cylinder are alone for a second."""
    terms_of(made).robots.state.root.pos[:, 2] = 20.0


def test_the_board_rolls_on_the_cylinder_when_pushed(env):
    made = env("humanoid-board")
    far_above(made)
    world = terms_of(made).world
    world.qvel[:, BOARD_V][:, 1] = 0.5
    for _ in range(6):
        made.step(torch.zeros(8, 21))
    of_board, of_cylinder = world.qvel[:, BOARD_V], world.qvel[:, CYLINDER_V]
    assert (of_cylinder[:, 1] > 0.1).all()
    # without slipping the cylinder turns by v / r, and the board goes twice as fast as the cylinder
    torch.testing.assert_close(of_cylinder[:, 3], -of_cylinder[:, 1] / 0.1, rtol=0.05, atol=0.05)
    torch.testing.assert_close(of_board[:, 1], 2 * of_cylinder[:, 1], rtol=0.1, atol=0.02)
    assert (world.qpos[:, CYLINDER_Q][:, 1] > 0.01).all()


def test_the_board_neither_sinks_into_the_cylinder_nor_tilts_by_itself(env):
    made = env("humanoid-board")
    far_above(made)
    for _ in range(30):
        made.step(torch.zeros(8, 21))
    pose = terms_of(made).robots.world.qpos[:, BOARD_Q]
    assert ((pose[:, 2] - 0.225).abs() < 1.5e-3).all()
    assert (pose[:, 4:6].abs() < 5e-3).all()


def test_a_torso_below_1_3_m_is_death_without_any_contact(env):
    made = env("humanoid-board")
    state = terms_of(made).robots.state
    state.root.pos[0, 2] = 1.25
    _, reward, died, *_ = made.step(torch.zeros(8, 21))
    assert died.tolist() == [True] + [False] * 7
    assert reward[0] == -1
    assert ((reward[1:] > 1.5) & (reward[1:] < 3.5)).all()


def test_at_the_origin_the_heading_is_that_of_the_start(env):
    """The authors measure it towards the origin, where it would be 0 and the reward of a step 0.5 less."""
    made = env("humanoid-board")
    state = terms_of(made).state
    state.previous_xy.copy_(state.root.pos[:, :2])
    values = {name: term.value(state) * term.weight for name, term in made.terms.task.rewards.items()}
    bonus = sum(values[name] for name in ("progress", "alive", "upright", "heading"))
    torch.testing.assert_close(bonus, torch.full((8,), 2.6))


# -- the privileged critic ---------------------------------------------------------------------------------------------


def expected_of(model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> list[float]:
    """Return the observations of board and cylinder, [17], from MuJoCo's data alone."""
    data = mujoco.MjData(model)
    data.qpos, data.qvel = qpos, qvel
    mujoco.mj_forward(model, data)
    torso, board, cylinder = (data.body(name) for name in ("robot/torso", "board/board", "cylinder/cylinder"))
    moves = []
    for body in (board, cylinder):
        moves.append(np.zeros(6))  # angular, then linear velocity
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, body.id, moves[-1], 0)
    frame, axis = board.xmat.reshape(3, 3), cylinder.xmat.reshape(3, 3)[:, 0]
    return [
        *(np.arctan2(frame[2, 1], frame[2, 2]), -np.arcsin(frame[2, 0]), np.arctan2(frame[1, 0], frame[0, 0])),
        *(board.xpos - cylinder.xpos)[1:],
        *(board.xpos - torso.xpos)[:2],
        *moves[0][3:],
        *moves[0][:3],
        moves[1][4],
        axis @ moves[1][:3],
        *(torso.xpos - cylinder.xpos)[:2],
    ]


def test_the_critic_observes_the_pose_and_motion_of_board_and_cylinder(env):
    """Both have random rotations and velocities."""
    made = env("humanoid-board", privileged_critic=True)
    world, rng = terms_of(made).world, np.random.default_rng(0)
    poses = rng.normal(size=(8, 2, 7))
    poses[..., 3:] /= np.linalg.norm(poses[..., 3:], axis=-1, keepdims=True)
    world.qpos[:, 28:42] = torch.tensor(poses.reshape(8, 14))
    world.qvel[:, 27:39] = torch.tensor(rng.normal(size=(8, 12)))
    obs = terms_of(made).observations()
    assert torch.equal(obs["critic"][:, :100], obs["actor"])
    for found, qpos, qvel in zip(obs["critic"][:, 100:], world.qpos, world.qvel, strict=True):
        assert found.tolist() == pytest.approx(expected_of(world.model, qpos.numpy(), qvel.numpy()), abs=1e-5)


def test_with_a_privileged_critic_the_actor_and_all_else_stay_the_same_to_the_bit(env):
    plain, privileged = env("humanoid-board"), env("humanoid-board", privileged_critic=True)
    generator = torch.Generator().manual_seed(5)
    assert torch.equal(plain.get_observations()["actor"], privileged.get_observations()["actor"])
    ends = 0
    for _ in range(40):
        action = torch.randn(8, 21, generator=generator)
        (expected, *others), (got, *same) = plain.step(action), privileged.step(action)
        assert list(expected) == ["actor"]
        assert torch.equal(got["actor"], expected["actor"])
        for mine, theirs in zip(same[:3], others[:3], strict=True):
            assert torch.equal(mine, theirs)
        ends += int(others[1].sum())
    assert ends > 0


def test_the_root_owns_the_privileged_observations(env):
    found = model_layouts(env("humanoid-board", privileged_critic=True), {})
    actor, critic = found["actor"], found["critic"]
    assert actor.layout == model_layouts(env("humanoid-board"), {})["critic"].layout
    assert critic.guessed == actor.guessed == []
    assert critic.layout.obs_dim == critic.layout.used_obs_dim == 117
    seen = [(term.name, term.kind) for term in critic.layout.obs[len(actor.layout.obs) :]]
    assert seen == [(term.name, "root") for term in terms.PRIVILEGED]


@pytest.mark.parametrize("option", ["start_noise_curriculum", "privileged_critic"])
@pytest.mark.parametrize("value", ["1", "often", "[true]", "null"])
def test_an_option_that_is_not_true_or_false_is_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must be true or false; got "):
        make_env_cfg("humanoid-board", 1, 0, options={option: value})


def test_options_are_off_by_default():
    cfg = make_env_cfg("humanoid-board", 1, 0)
    assert not task_of(cfg).start_noise_curriculum
    assert list(task_of(cfg).obs) == list(cfg.observations) == ["actor"]
