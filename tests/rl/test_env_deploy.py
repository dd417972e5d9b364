"""The contract of an mjlab task: from a robot's state, it gives the observation that the policy had in the training."""

import json
from contextlib import closing

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from mjlab.envs import mdp
from mjlab.managers.observation_manager import ObservationTermCfg

from body_transformer import Policy, PolicyConfig
from body_transformer.cli.main import main
from body_transformer.deploy.contract import Checks, Contract
from body_transformer.deploy.observation import Measured, Observation, gravity_direction
from body_transformer.deploy.runtime_config import RuntimeConfig, control_of
from body_transformer.rl.env_deploy import sections_of
from body_transformer.rl.infer_layout import infer_layout
from body_transformer.run import Run

from .environments import CARTPOLE, G1, GO1, ROUGH_GO1, YAM, make_env, settle


def contract_of(env, num_steps=0, **options) -> Contract:
    """Return the contract of a policy of this environment, with meaningless checks."""
    layout = infer_layout(env, ["actor"]).layout
    found = sections_of(env, layout, num_steps, **options)
    checks = Checks(((0.0,) * layout.obs_dim,), ((0.0,) * layout.action_dim,))
    return Contract.make(
        None, found.obs, found.control, layout, checks, b"", environment=found.environment, robot=found.robot
    )


def measure(env, measured: Measured) -> None:
    """Read the first robot's state as its sensors would."""
    data = env.scene["robot"].data
    measured.joint_pos[:], measured.joint_vel[:] = data.joint_pos[0].numpy(), data.joint_vel[0].numpy()
    measured.quaternion[:] = data.root_link_quat_w[0].numpy()
    measured.angular_velocity[:] = data.root_link_ang_vel_b[0].numpy()
    measured.linear_velocity[:] = data.root_link_lin_vel_b[0].numpy()
    gravity_direction(measured.quaternion, measured.gravity)


def randomize(env, seed: int) -> None:
    """Give the robot a random state, previous action and command."""
    rng = torch.Generator().manual_seed(seed)
    data = env.sim.data
    data.qpos[:, :7] += 0.3 * torch.randn(data.qpos[:, :7].shape, generator=rng)
    data.qpos[:, 3:7] /= data.qpos[:, 3:7].norm(dim=-1, keepdim=True)
    data.qpos[:, 7:] += 0.1 * torch.randn(data.qpos[:, 7:].shape, generator=rng)
    data.qvel[:] = torch.randn(data.qvel.shape, generator=rng)
    env.action_manager.process_action(torch.randn(env.num_envs, env.action_manager.total_action_dim, generator=rng))
    env.command_manager.get_term("twist").vel_command_b[:] = torch.tensor([0.4, -0.2, 0.3])
    settle(env)


def without_bias(cfg) -> None:
    del cfg.events["encoder_bias"]


def with_scales_and_history(cfg) -> None:
    without_bias(cfg)
    terms = cfg.observations["actor"].terms
    terms["joint_vel"].scale, terms["joint_vel"].clip = 0.05, (-10.0, 12.0)
    terms["base_ang_vel"].scale = (0.25, 0.5, 1.0)
    terms["projected_gravity"].history_length = terms["joint_pos"].history_length = 3


@pytest.mark.parametrize("task", [GO1, G1])
@pytest.mark.parametrize("change", [without_bias, with_scales_and_history])
def test_the_robots_observation_and_targets_are_those_of_the_environment(task, change):
    with closing(make_env(task, change, num_envs=1)) as env:
        contract = contract_of(env)
        control, measured = control_of(contract), Measured(len(contract.control.joints))
        previous, command = np.zeros(len(control.joints)), np.array([0.4, -0.2, 0.3])
        observation = Observation(contract, measured, previous, command)
        for step in range(4):
            randomize(env, step)
            measure(env, measured)
            previous[:] = action = env.action_manager.action[0].numpy()
            if step == 0:
                env.observation_manager.reset()
            wanted = env.observation_manager.compute(update_history=True)["actor"][0].numpy()
            np.testing.assert_allclose(observation.update(), wanted, atol=2e-5)
        env.action_manager.apply_action()
        targets = env.scene["robot"].data.joint_pos_target[0].numpy()
        np.testing.assert_allclose(np.array(control.offset) + np.array(control.scale) * action, targets, atol=1e-5)


@pytest.mark.parametrize(("task", "joints"), [(GO1, 12), (G1, 29)])
def test_nothing_in_the_contract_of_a_walking_task_is_empty(task, joints):
    with closing(make_env(task, num_envs=1)) as env:
        contract = contract_of(env)
        entity = env.scene["robot"]
        control = control_of(contract)  # refuses an infinite limit
        assert control.joints == tuple(entity.joint_names)
        assert (len(control.joints), control.hz, control.kind) == (joints, 50, "position")
        assert all(term.source for term in contract.obs)
        assert contract.environment.imu == imu_place(env)
        model = env.sim.mj_model
        for k, joint in enumerate(control.joints):
            servo = model.actuator(f"robot/{joint}")
            assert (control.kp[k], control.kd[k]) == (servo.gainprm[0], -servo.biasprm[2])
            assert control.torque_limits[k] == servo.forcerange[1]
            assert control.position_limits[k] == tuple(model.joint(f"robot/{joint}").range)
        np.testing.assert_allclose(control.default_pose, entity.data.default_joint_pos[0].numpy())


def imu_place(env):
    sensor = env.sim.mj_model.sensor("robot/imu_lin_vel")
    return tuple(env.sim.mj_model.site_pos[sensor.objid[0]].tolist())


@pytest.mark.parametrize(("num_steps", "fastest", "turning"), [(0, 1.0, 0.5), (5000 * 24, 2.0, 0.7), (10**6, 3.0, 0.7)])
def test_commands_beyond_those_of_the_training_so_far_are_refused_with_the_range(num_steps, fastest, turning):
    from body_transformer.rl.registry import make_env as training_env

    with closing(training_env(f"mjlab:{GO1}", 1, 0, "cpu")) as env:
        contract = contract_of(env, num_steps)
    (_, most), sideways, (_, turn) = contract.environment.command_range
    assert (most, sideways, turn) == (fastest, (-1.0, 1.0), turning)
    assert RuntimeConfig().policy_command(contract) == (0.0, 0.0, 0.0)
    assert RuntimeConfig(command=(fastest, 0.0, 0.0)).policy_command(contract)
    with pytest.raises(ValueError, match=f"trained with commands of .* to {fastest:g}, -1 to 1, .*; got 3.5, 0, 0"):
        RuntimeConfig(command=(3.5, 0.0, 0.0)).policy_command(contract)


def test_an_environment_that_no_contract_can_describe_is_refused_with_the_reason():
    with closing(make_env(CARTPOLE, num_envs=1)) as env, pytest.raises(ValueError, match="'effort' is a JointEffort"):
        contract_of(env)

    def clipped(cfg):
        cfg.actions["joint_pos"].clip = {".*": (-1.0, 1.0)}

    with closing(make_env(GO1, clipped, num_envs=1)) as env, pytest.raises(ValueError, match="clips its targets"):
        contract_of(env)

    def uneven(cfg):
        cfg.observations["actor"].terms["base_ang_vel"].scale = (1.0, 2.0, 3.0)
        cfg.observations["actor"].terms["base_ang_vel"].clip = (-1.0, 1.0)

    with closing(make_env(GO1, uneven, num_envs=1)) as env, pytest.raises(ValueError, match="one scale above 0"):
        contract_of(env)

    def two_places(cfg):
        cfg.observations["actor"].terms["other"] = ObservationTermCfg(func=mdp.base_lin_vel)

    with closing(make_env(GO1, two_places, num_envs=1)) as env, pytest.raises(ValueError, match="one place"):
        contract_of(env)


def test_terms_that_only_the_simulator_knows_have_no_source():
    with closing(make_env(ROUGH_GO1, num_envs=1)) as env:
        contract = contract_of(env)
    assert [term.name for term in contract.obs if not term.source] == ["height_scan"]
    with closing(make_env(YAM, num_envs=1)) as env:
        contract = contract_of(env, clip_actions=2.0)
    assert {term.name for term in contract.obs if not term.source} >= {"ee_to_cube", "cube_to_goal"}
    assert contract.control.clip == 2.0
    with pytest.raises(ValueError, match="velocity_limits of its contract must all be finite"):
        control_of(contract)


# -- bot export --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run folder of a Go1 after 30,000 iterations of 4 steps, which is where the command's range grows."""
    folder = tmp_path_factory.mktemp("runs") / "go1"
    with closing(make_env(GO1, num_envs=1)) as env:
        layout = infer_layout(env, ["actor"]).layout
    settings = {"task": f"mjlab:{GO1}", "num_envs": 2, "num_steps_per_env": 4, "num_mini_batches": 2}
    Run.create(folder, {"name": f"mjlab:{GO1}", "variant": "bot-mix", "seed": 0, "rl": settings})
    Policy(layout, PolicyConfig(embed_dim=8, num_layers=1, ff_dim=8)).save(folder / "checkpoints" / "30000")
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_mjlab_run_is_exported_with_its_whole_contract(run, tmp_path, capsys):
    out = tmp_path / "go1"
    assert main(["export", str(run), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["control"] == "position"
    contract = Contract.load(out)
    assert contract.experiment == f"mjlab:{GO1}"
    assert contract.environment.command_range == ((-1.5, 2.0), (-1.0, 1.0), (-0.7, 0.7))
    assert (out / "robot.xml").is_file()
    assert contract.training.kp == contract.control.kp
    assert control_of(contract).joints[0] == "FR_hip_joint"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_policy_saved_outside_a_run_gets_the_contract_of_the_named_task(run, tmp_path, capsys):
    Policy.load(run).save(tmp_path / "saved")
    asked = ["export", str(tmp_path / "saved"), "--out", str(tmp_path / "out"), "--experiment"]
    assert main([*asked, f"mjlab:{GO1}"]) == 0
    assert control_of(Contract.load(tmp_path / "out")).hz == 50
    assert "no robot can run it" not in capsys.readouterr().out
    assert main([*asked, f"mjlab:{CARTPOLE}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no robot can run it: the contract has no control, because" in said
    assert Contract.load(tmp_path / "out").control is None
    assert main([*asked, "mjlab:Nothing"]) == 1
    assert "unknown task 'mjlab:Nothing'" in capsys.readouterr().err
