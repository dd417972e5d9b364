"""A1s on the CPU: observations, starts, parameters, motors, rewards and contacts."""

import math

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.body.compare import differences
from body_transformer.experiment import load_experiment
from body_transformer.rl.a1.model import DEFAULT_POSE, JOINTS, KD, KP
from body_transformer.rl.envs.mjlab import terms_of
from body_transformer.rl.infer_layout import infer_layout

from ..environments import random_actions

# -- observations ------------------------------------------------------------------------------------------------------


def test_the_actors_layout_is_the_experiments_and_the_critic_has_its_own(env):
    made = env("a1-walk")
    found = infer_layout(made, ["actor"])
    assert differences(found.layout, load_experiment("a1-walk").layout()) == []
    assert found.guessed == []
    critic = infer_layout(made, ["critic"])
    assert critic.guessed == []
    assert differences(critic.layout, load_experiment("a1-walk").critic_layout()) == []
    assert (critic.layout.obs_dim, critic.layout.used_obs_dim) == (65, 65)
    owners = {term.name: (term.kind, term.of) for term in critic.layout.obs}
    assert owners["motor_strength"] == ("joints", JOINTS)
    assert {owners[name][0] for name in ("friction", "com_offset", "added_mass")} == {"root"}


def test_the_critic_observes_true_values_and_the_actor_noise_within_its_bounds(env):
    made = env("a1-walk")
    robots = terms_of(made).robots
    most = torch.tensor([0.0] * 3 + [0.05] * 6 + [0.0] * 3 + [0.01] * 12 + [0.075] * 12 + [0.0] * 12)
    errors = []
    for action in random_actions(20, "a1-walk", scale=0.5):
        obs, *_ = made.step(action)
        actor, critic = obs["actor"], obs["critic"]
        assert (actor[:, :3] == 0).all()
        torch.testing.assert_close(critic[:, 24:36], 0.05 * robots.state.joint_vel)
        own = robots.state.parameters
        expected = [own.friction[:, None], own.com_offset, own.added_mass[:, None], own.strength]
        torch.testing.assert_close(critic[:, 48:], torch.cat(expected, -1))
        errors.append(actor[:, 3:] - critic[:, 3:48])
    largest = torch.cat(errors).abs().amax(0)
    assert (largest <= most[3:] + 1e-6).all()
    assert (largest >= 0.9 * most[3:]).all()
    assert obs["critic"][:, :3].abs().max() > 0


def test_joints_have_the_order_of_the_task_not_of_the_model(env):
    made = env("a1-walk")
    robots, model = terms_of(made).robots, made.sim.mj_model
    for k, name in enumerate(JOINTS):
        joint, motor = model.joint(f"robot/{name}"), model.actuator(f"robot/{name}").id
        torch.testing.assert_close(robots.state.joint_pos[:, k], made.sim.data.qpos[:, int(joint.qposadr[0])])
        robots.act(torch.zeros(8, 12))
        robots.before_physics(0)
        torch.testing.assert_close(robots.state.torque[:, k], made.sim.data.ctrl[:, motor])


# -- starts of episodes ------------------------------------------------------------------------------------------------


def test_start_states_have_the_distributions_of_the_paper(env):
    starts = terms_of(env("a1-walk")).robots.starts
    model = env("a1-walk").sim.mj_model
    places = [int(model.joint(f"robot/{name}").qposadr[0]) for name in JOINTS]
    ratio = starts.qpos[:, places] / torch.tensor(DEFAULT_POSE)
    assert 0.5 <= ratio.min() < 0.51
    assert 1.49 < ratio.max() <= 1.5001
    calves = ratio[:, 2::3]
    assert calves.min() > 0.61  # of 1.5 rad, the least that a calf can be bent is 0.916
    torch.testing.assert_close(starts.qvel[:, :6].abs().amax(0), torch.full((6,), 0.5), atol=0.01, rtol=0)
    torch.testing.assert_close(starts.qvel[:, 6:].abs().amax(0), torch.full((12,), 3.0), atol=0.01, rtol=0)
    assert (starts.drawn[2][..., :3] == torch.tensor([0.5, 0.0, 0.0])).all()
    assert (starts.qpos[:, 3] == 1).all()


def test_a_fresh_episode_keeps_nothing_of_the_previous_one(env):
    made = env("a1-walk", noise=False)
    state = terms_of(made).robots.state
    for action in random_actions(15, "a1-walk", scale=0.5):
        made.step(action)
    made.episode_length_buf[:] = 999
    obs, _, died, late, _ = made.step(torch.ones(8, 12))
    assert (died | late).all()
    assert (obs["actor"][:, 36:] == 0).all()
    for kept in (state.air_time, state.torque, state.energy, state.base_force, state.action):
        assert (kept == 0).all()
    assert (terms_of(made).robots.motors.targets == torch.tensor(DEFAULT_POSE)).all()
    assert (made.episode_length_buf == 0).all()


def test_commands_are_drawn_from_their_ranges_for_every_episode(new_env):
    robots = terms_of(new_env("a1-walk", command=((-0.5, 1.0), (-0.3, 0.3), (-1.0, 1.0)))).robots
    commands = robots.starts.drawn[2][:, 0, :3]
    low, high = commands.amin(0), commands.amax(0)
    torch.testing.assert_close(low, torch.tensor([-0.5, -0.3, -1.0]), atol=0.01, rtol=0)
    torch.testing.assert_close(high, torch.tensor([1.0, 0.3, 1.0]), atol=0.01, rtol=0)
    robots.restart(torch.ones(8, dtype=torch.bool))
    assert len(robots.state.command.unique(dim=0)) == 8


# -- parameters of robots ----------------------------------------------------------------------------------------------


def test_parameters_are_drawn_from_the_papers_ranges():
    from body_transformer.rl.a1.options import WalkOptions
    from body_transformer.rl.a1.parameters import A1Parameters

    options = WalkOptions(latency=(0, 3), stiffness=(0.5, 2.0), damping=(0.8, 1.5), interpolate=True)
    drawn = A1Parameters.draw(torch.zeros(4000, 1), 0, options)
    for values, low, high in (
        (drawn.friction, 0, 2),
        (drawn.added_mass, 1, 3),
        (drawn.com_offset[:, 0], -0.05, 0.15),
        (drawn.com_offset[:, 1], -0.1, 0.1),
        (drawn.com_offset[:, 2], -0.05, 0.05),
        (drawn.strength, 0.9, 1.1),
        (drawn.stiffness, 0.5, 2.0),
        (drawn.damping, 0.8, 1.5),
    ):
        assert values.min() == pytest.approx(low, abs=(high - low) / 100)
        assert values.max() == pytest.approx(high, abs=(high - low) / 100)
    assert drawn.latency.unique().tolist() == [0, 1, 2, 3]
    assert drawn.ticks.unique().tolist() == [1, 2, 4]
    few = A1Parameters.draw(torch.zeros(5, 1), 0, WalkOptions())
    torch.testing.assert_close(few.friction, drawn.friction[:5])
    assert few.stiffness.tolist() == few.damping.tolist() == [1.0] * 5
    assert few.ticks.tolist() == [1] * 5


def test_drawn_parameters_are_those_of_the_simulated_models(env):
    made = env("a1-walk")
    parameters, model, plain = terms_of(made).robots.state.parameters, made.sim.model, made.sim.mj_model
    trunk = plain.body("robot/trunk").id
    torch.testing.assert_close(model.body_mass[:, trunk], 4.714 + parameters.added_mass)
    torch.testing.assert_close(model.body_subtreemass[:, trunk], 12.454 + parameters.added_mass, atol=1e-3, rtol=0)
    moved = model.body_ipos[:, trunk] - torch.tensor(plain.body_ipos[trunk], dtype=torch.float32)
    torch.testing.assert_close(moved, parameters.com_offset, atol=1e-6, rtol=0)
    frictions = model.pair_friction[:, :, :2]
    torch.testing.assert_close(frictions, ((parameters.friction + 1) / 2)[:, None, None].expand_as(frictions))


def test_stiffer_motors_have_more_gain_and_the_same_targets(env):
    usual, stiff = env("a1-walk", noise=False), env("a1-walk", noise=False, stiffness=(2.0, 2.0))
    for made in (usual, stiff):
        robots = terms_of(made).robots
        made.reset(seed=0)
        robots.act(torch.full((8, 12), 0.3))
        robots.before_physics(0)
    torch.testing.assert_close(terms_of(stiff).robots.motors.targets, terms_of(usual).robots.motors.targets)
    state = terms_of(stiff).robots.state
    asked = 2 * KP * (terms_of(stiff).robots.motors.targets[0] - state.joint_pos) - KD * state.joint_vel
    limited = (terms_of(stiff).robots.state.parameters.strength * asked).clamp(-33.5, 33.5)
    torch.testing.assert_close(state.torque, limited)
    assert (state.torque.abs() > terms_of(usual).robots.state.torque.abs()).float().mean() > 0.5


@pytest.mark.parametrize("stiffness", [(1.0, 1.0), (2.0, 2.0)])
def test_no_target_asks_for_more_than_25_nm_when_it_is_set(env, stiffness):
    made = env("a1-walk", stiffness=stiffness)
    robots = terms_of(made).robots
    for action in (torch.full((8, 12), 10.0), torch.full((8, 12), -10.0), torch.zeros(8, 12)):
        robots.act(action)
        state = robots.state
        asked = KP * (robots.motors.targets[0] - state.joint_pos) - KD * state.joint_vel
        if action.abs().max() > 0:
            torch.testing.assert_close(asked, 25 * action.sign(), atol=1e-3, rtol=0)
        else:
            free = asked.abs() < 24.99
            wanted = torch.tensor(DEFAULT_POSE).expand(8, -1)
            torch.testing.assert_close(robots.motors.targets[0][free], wanted[free])


def test_an_action_takes_effect_after_the_latency_in_physics_steps(new_env):
    made = new_env("a1-walk", latency=(5, 5))
    robots = terms_of(made).robots
    default = torch.tensor(DEFAULT_POSE).expand(8, -1)
    small = torch.full((8, 12), 0.01)
    used = []
    for action in (small, 2 * small, 3 * small):
        robots.act(action)
        robots.motors.targets[0] = default + 0.5 * action  # without the bound, so that the actions differ
        used += [(robots.motors.target(step) - default).mean().item() / 0.005 for step in range(4)]
    assert used == pytest.approx([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2], abs=1e-2)


def test_pushes_change_the_velocity_when_they_are_due(new_env):
    pushed, free = (new_env("a1-walk", noise=False, push_every_s=every, push_speed=1.0) for every in (0.1, None))
    for made in (pushed, free):
        made.reset(seed=0)
    for step in range(1, 6):
        ours, theirs = (made.step(torch.zeros(8, 12))[0]["critic"][:, :2] for made in (pushed, free))
        assert ((ours - theirs).abs().amax() > 0.1).item() is (step == 5)
        assert (ours - theirs).abs().max() <= 2 * 1.5


# -- steps -------------------------------------------------------------------------------------------------------------


def test_the_reward_is_002_times_the_papers_sum_and_never_negative(env):
    made = env("a1-walk")
    robots = terms_of(made).robots
    zeros = 0
    for action in random_actions(40, "a1-walk", scale=0.5):
        _, reward, died, late, _ = made.step(action)
        s = robots.state
        w, x, y, z = s.root.quat.unbind(-1)
        heading = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)], -1)
        left = torch.stack([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)], -1)
        body = torch.stack([(s.root.vel * heading).sum(-1), (s.root.vel * left).sum(-1)], -1)
        wanted = torch.tensor([0.5, 0.0])
        total = (
            2 * torch.exp(-((wanted - body) ** 2).sum(-1) / 0.5)
            - 2 * ((wanted - s.root.vel[:, :2]) ** 2).sum(-1).sqrt()
            + 0.05 * torch.exp(-(s.root.spin[:, 2] ** 2) / 0.5)
            + 2
            + 2 * ((s.flight - 0.5) * s.landed).sum(-1)
            - 2e-5 * s.energy / 4
            - 0.1 * s.outside / 4
            - 0.2 * s.overloaded
        )
        living = ~(died | late)
        torch.testing.assert_close(reward[living], 0.02 * total.clamp_min(0)[living], atol=1e-5, rtol=1e-4)
        zeros += int((reward == 0).sum())
    assert zeros > 0


def test_the_ground_carries_the_robot_and_its_feet_are_in_contact(env):
    made = env("a1-walk", flat=True, noise=False)
    for _ in range(60):
        made.step(torch.zeros(8, 12))
    state = terms_of(made).robots.state
    lift = -made.sim.data.sensordata[:, terms_of(made).robots._lift].sum(-1)
    weight = 9.81 * (12.454 + terms_of(made).robots.state.parameters.added_mass)
    standing = state.on_ground.all(-1) & (state.root.vel.norm(dim=-1) < 0.05)
    assert standing.sum() >= 4
    torch.testing.assert_close(lift[standing], weight[standing], rtol=0.1, atol=0)
    assert (state.air_time[standing] == 0).all()


def test_air_time_counts_the_seconds_until_a_foot_lands(env):
    made = env("a1-walk", noise=False)
    state = terms_of(made).robots.state
    made.step(torch.zeros(8, 12))
    torch.testing.assert_close(state.air_time, torch.full((8, 4), 0.02))
    landed = torch.zeros(8, 4)
    for _ in range(25):
        before = state.air_time.clone()
        made.step(torch.zeros(8, 12))
        torch.testing.assert_close(state.flight[state.landed], before[state.landed] + 0.02)
        landed += state.landed
    assert (landed >= 1).float().mean() > 0.8


def test_positions_of_knees_feet_and_corners_are_those_of_mujoco(env):
    made = env("a1-walk")
    robots, model = terms_of(made).robots, made.sim.mj_model
    for action in random_actions(12, "a1-walk", scale=0.5):
        made.step(action)
    found = robots.planes.centres(robots.state.joint_pos, robots.state.root)
    feeler_of = dict(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True))
    geoms = [feeler_of[model.geom(f"plane{k}").id] for k in range(model.npair)]
    data = mujoco.MjData(model)
    for k in range(8):
        data.qpos = made.sim.data.qpos[k].numpy()
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(found[k].numpy(), data.geom_xpos[geoms], atol=2e-6)


@pytest.mark.parametrize("yaw", [0.0, 2.0])
def test_forward_speed_is_the_distance_ahead_over_time(env, yaw):
    made = env("a1-walk", noise=False)
    state = terms_of(made).robots.state
    state.root.quat[:] = torch.tensor([math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)])
    state.root.vel[:, :2] = 0.7 * torch.tensor([math.cos(yaw), math.sin(yaw)])
    before = state.root.pos[:, :2].clone()
    made.step(torch.zeros(8, 12))
    far = torch.linalg.vector_norm(state.root.pos[:, :2] - before, dim=1)
    torch.testing.assert_close(made.forward_speed, far * 50, rtol=0.05, atol=0.02)
    assert (made.forward_speed > 0.3).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency": (3, 1)}, r"latency must be 0 <= low <= high, in physics steps; got \(3, 1\)"),
        ({"command": ((1.0, 0.0), (0.0, 0.0), (0.0, 0.0))}, "command must be three ranges"),
        ({"latency": 4}, "latency must be a list; got 4"),
        ({"command": 0.8}, "command must be a list; got 0.8"),
        ({"stiffness": (2.0, 1.0)}, r"stiffness must be 0 < low <= high; got \(2.0, 1.0\)"),
        ({"stiffness": (0.0, 1.0)}, "stiffness must be 0 < low <= high"),
        ({"stiffness": (1.0,)}, "stiffness must have 2 entries"),
        ({"noise": "no"}, "noise must be true or false; got 'no'"),
        ({"push_speed": "fast"}, "push_speed must be a finite number; got 'fast'"),
        ({"turning": -1}, "turning must be 0 or above; got -1"),
        ({"push_every_s": 0.001}, "push_every_s must be at least a control step, 0.02; got 0.001"),
    ],
)
def test_options_out_of_range_or_of_the_wrong_type_are_refused(options, message):
    from body_transformer.rl.a1.walk import WalkOptions

    with pytest.raises(ValueError, match=message):
        WalkOptions(**options)
