"""Layouts inferred from mjlab's environments: an entry belongs to the body whose state it shows."""

import copy

import numpy as np
import pytest
import torch

from body_transformer import BodyGraph, Layout, PolicyConfig, Term
from body_transformer.body.owners import ROOT, Owner, as_terms

from .environments import CARTPOLE, G1, GO1, ROUGH_GO1, TRACKING, YAM, changed, make_env, observe, settle

module = pytest.importorskip("body_transformer.rl.infer_layout")
infer_layout = module.infer_layout


@pytest.fixture(scope="module")
def cartpole():
    return make_env(CARTPOLE)


@pytest.fixture(scope="module")
def go1():
    return make_env(GO1)


@pytest.fixture(scope="module")
def yam():
    return make_env(YAM)


def entries(layout: Layout, term: str, node: str) -> set[int]:
    """Return the entries of a node in a term."""
    place = layout.obs_slices[term]
    return {k for k in layout.obs_ids(node) if place.start <= k < place.stop}


def below(graph: BodyGraph, node: str) -> set[str]:
    """Return the node and its descendants."""
    found = {node}
    for parent, child in graph.edges:  # parents before children in mjlab's robots
        if parent in found:
            found.add(child)
    return found


# -- entries that change are those of the layout -----------------------------------------------------------------------


@pytest.mark.parametrize("joint", ["FR_hip_joint", "FL_thigh_joint", "RL_calf_joint"])
@pytest.mark.parametrize(("quantity", "term"), [("qpos", "joint_pos"), ("qvel", "joint_vel")])
def test_a_joints_state_changes_exactly_its_nodes_entry(go1, joint, quantity, term):
    layout = infer_layout(go1, ["actor"]).layout
    robot = go1.scene["robot"]
    index = robot.joint_names.index(joint)
    addresses = robot.indexing.joint_q_adr if quantity == "qpos" else robot.indexing.joint_v_adr
    settle(go1)
    before = observe(go1, "actor")
    state = getattr(go1.sim.data, quantity)
    state[:, int(addresses[index])] += 0.1
    settle(go1)
    found = changed(before, observe(go1, "actor"))
    state[:, int(addresses[index])] -= 0.1
    assert found == entries(layout, term, layout.graph.joints[joint])
    assert len(found) == 1


def test_other_entries_that_a_joint_changes_belong_to_bodies_below_it(go1):
    layout = infer_layout(go1, ["critic"]).layout
    index = go1.scene["robot"].joint_names.index("FR_thigh_joint")
    go1.sim.data.qpos[:, 2] += 0.4  # in the air, because on the ground the load on one foot changes that on the others
    settle(go1)
    before = observe(go1, "critic")
    address = int(go1.scene["robot"].indexing.joint_q_adr[index])
    go1.sim.data.qpos[:, address] += 0.3
    settle(go1)
    found = changed(before, observe(go1, "critic"))
    go1.sim.data.qpos[:, address] -= 0.3
    go1.sim.data.qpos[:, 2] -= 0.4
    nodes = {layout.graph.nodes[k] for k in layout.obs_node_ids[sorted(found)]}
    assert nodes <= below(layout.graph, "FR_thigh")
    assert entries(layout, "joint_pos", "FR_thigh") <= found
    assert entries(layout, "foot_height", "FR_calf") <= found


@pytest.mark.parametrize("foot", ["FR", "FL", "RR", "RL"])
def test_a_foots_contact_changes_exactly_the_entries_of_its_leg(go1, foot):
    layout = infer_layout(go1, ["critic"]).layout
    settle(go1)
    before = observe(go1, "critic")
    data = go1.sim.data.sensordata
    for field in ("found", "force"):
        sensor = go1.sim.mj_model.sensor(f"feet_ground_contact_{foot}_foot_collision_{field}")
        data[:, sensor.adr[0] : sensor.adr[0] + sensor.dim[0]] += 3.5
    go1.scene.update(dt=0.0)
    found = changed(before, observe(go1, "critic"))
    settle(go1)
    expected = entries(layout, "foot_contact_forces", f"{foot}_calf") | entries(layout, "foot_contact", f"{foot}_calf")
    assert found <= expected
    assert entries(layout, "foot_contact_forces", f"{foot}_calf") <= found


def test_the_last_action_belongs_to_the_joints_that_it_moved(yam):
    inferred = infer_layout(yam, ["actor"])
    layout, manager = inferred.layout, yam.action_manager
    for index, joint in enumerate(manager.get_term("joint_pos").target_names):
        before = observe(yam, "actor")
        manager._action[:, index] += 1.0
        assert changed(before, observe(yam, "actor")) == entries(layout, "actions", layout.graph.joints[joint])
        assert layout.action_ids(layout.graph.joints[joint]) == [index]


def test_a_term_of_a_site_belongs_to_the_sites_body_and_one_of_another_entity_to_the_root(yam):
    layout = infer_layout(yam, ["actor"]).layout
    assert {term.name: term.of for term in layout.obs}["ee_to_cube"] == ("link_6",)
    cube = yam.scene["cube"]
    before = observe(yam, "actor")
    yam.sim.data.qpos[:, int(cube.indexing.free_joint_q_adr[0])] += 0.05
    settle(yam)
    found = changed(before, observe(yam, "actor"))
    nodes = {layout.graph.nodes[k] for k in layout.obs_node_ids[sorted(found)]}
    assert nodes == {"link_6", layout.graph.root}


def test_actions_in_task_space_go_to_the_body_they_move():
    from mjlab.envs.mdp.actions import DifferentialIKActionCfg, JointPositionActionCfg

    def reach(cfg) -> None:
        cfg.actions = {
            "grip": JointPositionActionCfg(entity_name="robot", actuator_names=("left_finger",)),
            "reach": DifferentialIKActionCfg(
                entity_name="robot", actuator_names=("joint.*",), frame_type="site", frame_name="grasp_site"
            ),
        }

    inferred = infer_layout(make_env(YAM, reach, reset=False), ["actor"])
    layout = inferred.layout
    assert layout.actions == (Term.joints("grip", ["left_finger"]), Term.bodies("reach", ["link_6"], 6))
    last = layout.obs_slices["actions.0"].start
    nodes = [layout.graph.nodes[k] for k in layout.obs_node_ids[last : last + 7]]
    assert nodes == ["link_left_finger", *["link_6"] * 6]
    assert inferred.guessed == []


def test_actions_that_drive_two_entities_are_refused():
    from mjlab.envs.mdp.actions import JointPositionActionCfg

    def second(cfg) -> None:
        cfg.scene.entities["other"] = copy.deepcopy(cfg.scene.entities["cartpole"])
        cfg.actions["more"] = JointPositionActionCfg(entity_name="other", actuator_names=(".*",))

    env = make_env(CARTPOLE, second, reset=False)
    with pytest.raises(ValueError, match=r"the actions must drive one entity, .*; they drive 'cartpole', 'other'"):
        infer_layout(env, ["actor"])


# -- whole robots ------------------------------------------------------------------------------------------------------


def test_the_body_that_mjlab_puts_under_a_fixed_robot_is_not_a_node(cartpole, yam):
    graph = infer_layout(cartpole, ["actor"]).layout.graph
    assert graph.nodes == ("cart", "pole_1")
    assert graph.root == graph.bodies["mocap_base"] == "cart"
    assert infer_layout(yam, ["actor"]).layout.graph.root == "arm"


def test_cosine_and_sine_of_one_joint_are_its_two_entries(cartpole):
    inferred = infer_layout(cartpole, ["actor"])
    assert inferred.layout.obs == (
        Term.joints("cart_pos", ["slider"]),
        Term.joints("pole_angle", ["hinge_1"], 2),
        Term.joints("cart_vel", ["slider"]),
        Term.joints("pole_vel", ["hinge_1"]),
    )
    assert inferred.layout.actions == (Term.joints("effort", ["slider"]),)
    assert inferred.guessed == []


@pytest.mark.parametrize(
    ("task", "obs_dims", "num_nodes"), [(ROUGH_GO1, {"actor": 235, "critic": 259}, 13), (G1, {"critic": 111}, 30)]
)
def test_all_terms_of_mjlabs_own_robots_are_recognised(task, obs_dims, num_nodes):
    env = make_env(task, reset=False)  # without the kernels of its rough ground
    for group, obs_dim in obs_dims.items():
        inferred = infer_layout(env, [group])
        assert (inferred.layout.obs_dim, inferred.layout.graph.num_nodes) == (obs_dim, num_nodes)
        assert inferred.guessed == []
        terms = {term.name: term for term in inferred.layout.obs}
        assert terms["joint_pos"].of == terms["actions"].of == env.scene["robot"].joint_names
        assert inferred.layout.obs_slices["command"].start in inferred.layout.obs_ids(inferred.layout.graph.root)


def test_several_geoms_of_one_foot_belong_to_that_foot():
    """A sensor with geoms that alternate between bodies becomes several terms."""
    left, right = Owner("bodies", "left"), Owner("bodies", "right")
    assert as_terms("touch", [left] * 3 + [right] * 3, 2) == [Term.bodies("touch", ["left", "right"], 3, 2)]
    assert as_terms("touch", [left, right] * 2, 1) == [Term.bodies("touch", ["left", "right"], 1, steps=2)]
    assert as_terms("touch", [left, left, right], 2) == [
        Term.bodies("touch@0.0", ["left"], 2),
        Term.bodies("touch@0.1", ["right"], 1),
        Term.bodies("touch@1.0", ["left"], 2),
        Term.bodies("touch@1.1", ["right"], 1),
    ]


def test_names_alone_can_decide_the_owners_of_a_term(go1):
    from body_transformer.rl.env_robot import EnvRobot
    from body_transformer.rl.term_owners import EnvTerm, obs_owners

    robot = EnvRobot(go1)

    def owners(name: str, size: int, **params: str) -> list[Owner] | None:
        return obs_owners(robot, EnvTerm(name, mystery, params, size))

    joints, bodies = go1.scene["robot"].joint_names, go1.scene["robot"].body_names
    assert owners("dof_torque", 12) == [Owner("joints", joint) for joint in joints]
    assert owners("contact_force", 39) == [Owner("bodies", body) for body in bodies for _ in range(3)]
    assert owners("trunk_height", 1) == [Owner("bodies", "trunk")]
    assert owners("FR_calf_temperature", 2) == [Owner("bodies", "FR_calf")] * 2
    assert owners("base_velocity", 3) == owners("whatever", 3, command_name="twist") == [ROOT] * 3
    assert owners("joint_sines_and_cosines", 24) is None  # joint by joint, or all sines first?
    assert owners("contact_sum", 4) is None


# -- history and several groups ----------------------------------------------------------------------------------------


def test_history_repeats_the_joints_step_by_step():
    def remember(cfg) -> None:
        cfg.observations["actor"].terms["joint_pos"].history_length = 3

    env = make_env(GO1, remember)
    layout = infer_layout(env, ["actor"]).layout
    term = {term.name: term for term in layout.obs}["joint_pos"]
    assert (term.steps, term.dim, len(term.of)) == (3, 1, 12)
    place = layout.obs_slices["joint_pos"]
    robot = env.scene["robot"]
    seen = []
    for k in range(3):  # three states that differ in one joint each
        env.sim.data.qpos[:, int(robot.indexing.joint_q_adr[k])] += 0.25
        settle(env)
        obs = env.observation_manager.compute(update_history=True)["actor"]
        seen.append((robot.data.joint_pos_biased - robot.data.default_joint_pos).clone())
    torch.testing.assert_close(obs[:, place], torch.cat(seen, 1))
    names = np.array(layout.graph.nodes)[layout.obs_node_ids[place]]
    assert list(names) == [layout.graph.joints[joint] for joint in robot.joint_names] * 3


def test_groups_follow_each_other_and_terms_of_the_same_name_get_the_names_of_their_groups(go1):
    layout = infer_layout(go1, ["actor", "critic"]).layout
    assert layout.obs_dim == 48 + 72
    assert layout.obs_slices["actor/joint_pos"] == slice(9, 21)
    assert layout.obs_slices["critic/joint_pos"] == slice(48 + 9, 48 + 21)
    assert layout.obs_slices["foot_height"] == slice(48 + 48, 48 + 52)


# -- unknown terms and overrides ---------------------------------------------------------------------------------------


def mystery(env) -> torch.Tensor:
    return torch.zeros(env.num_envs, 12)


@pytest.fixture(scope="module")
def strange():
    from mjlab.managers.observation_manager import ObservationTermCfg

    def change(cfg) -> None:
        cfg.observations["actor"].terms["mystery"] = ObservationTermCfg(func=mystery)

    return make_env(GO1, change)


def test_an_unknown_term_goes_to_the_root_and_is_named(strange):
    inferred = infer_layout(strange, ["actor"])
    assert inferred.guessed == ["mystery"]
    assert len(entries(inferred.layout, "mystery", "trunk")) == 12
    assert "unknown terms 'mystery'" in inferred.describe()


@pytest.mark.parametrize("place", ["joints", "actions", "FR_hip", "unused", "root", "actuators"])
def test_an_override_wins(strange, place):
    inferred = infer_layout(
        strange, ["actor"], {"mystery": place, "actor/base_lin_vel": "RL_calf", "action/joint_pos": "trunk"}
    )
    layout = inferred.layout
    assert inferred.guessed == []
    term = {term.name: term for term in layout.obs}["mystery"]
    robot = strange.scene["robot"]
    expected = {
        "joints": Term.joints("mystery", robot.joint_names),
        "actions": Term.joints("mystery", strange.action_manager.get_term("joint_pos").target_names),
        "actuators": Term.actuators("mystery", robot.actuator_names),
        "FR_hip": Term.bodies("mystery", ["FR_hip"], 12),
        "root": Term.root("mystery", 12),
        "unused": Term.unused("mystery", 12),
    }
    assert term == expected[place]
    assert len(entries(layout, "base_lin_vel", "RL_calf")) == 3
    assert layout.action_ids("trunk") == list(range(12))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"mistery": "root"}, "unknown term 'mistery'; did you mean 'mystery'"),
        ({"mystery": "FR_knee"}, "term 'mystery' cannot go to 'FR_knee'; allowed: 'root', 'unused', 'joints'"),
        ({"mystery": "bodies"}, "term 'mystery' has 12 entries, which 13 bodies cannot share evenly"),
    ],
)
def test_an_invalid_override_is_an_error(strange, overrides, message):
    with pytest.raises(ValueError, match=message):
        infer_layout(strange, ["actor"], overrides)


def test_an_unknown_group_is_an_error(go1):
    with pytest.raises(ValueError, match="unknown observation group 'actr'; did you mean 'actor'"):
        infer_layout(go1, ["actr"])
    with pytest.raises(ValueError, match="groups must be a list of observation groups; got 'actor'"):
        infer_layout(go1, "actor")


def test_a_history_that_is_not_flat_is_refused():
    def remember(cfg) -> None:
        cfg.observations["actor"].history_length = 3
        cfg.observations["actor"].flatten_history_dim = False

    with pytest.raises(ValueError, match=r"a policy reads vectors; observation group 'actor' is not one, .*\(3, 5\)"):
        infer_layout(make_env(CARTPOLE, remember), ["actor"])


def test_the_description_has_a_row_per_node(go1):
    text = infer_layout(go1, ["actor"]).describe()
    assert all(node in text for node in ("trunk", "FR_calf", "RL_hip"))
    assert "3: joint_pos 1, joint_vel 1, actions 1" in text
    assert "48 observation entries, 48 used; 12 actions" in text


def test_terms_of_the_critic_alone_are_described_too():
    """Unknown terms are named there as well."""
    from mjlab.managers.observation_manager import ObservationTermCfg
    from tensordict import TensorDict

    from body_transformer.rl.config import RlConfig
    from body_transformer.rl.learner import Learner

    def change(cfg) -> None:
        cfg.observations["critic"].terms["mystery"] = ObservationTermCfg(func=mystery)

    def described(env) -> str:
        obs = TensorDict(env.observation_manager.compute(), batch_size=[env.num_envs])
        config = RlConfig(CARTPOLE, num_envs=env.num_envs, num_mini_batches=1)
        return Learner(env, obs, PolicyConfig(num_layers=1, head="gaussian"), config).describe()

    same = described(make_env(CARTPOLE))
    assert "critic" not in same
    assert same.count("5 observation entries") == 1
    actor, critic = described(make_env(CARTPOLE, change)).split("critic:")
    assert "5 observation entries" in actor
    assert "17 observation entries" in critic
    assert "unknown terms 'mystery'" in critic


def test_a_reference_motion_goes_to_its_joints_and_bodies(tmp_path):
    env = make_env(
        TRACKING, lambda cfg: setattr(cfg.commands["motion"], "motion_file", write_motion(tmp_path)), reset=False
    )
    terms = {term.name: term for term in infer_layout(env, ["critic"]).layout.obs}
    assert infer_layout(env, ["critic"]).guessed == []
    assert terms["command"] == Term.joints("command", env.scene["robot"].joint_names, steps=2)
    bodies = env.command_manager.get_term("motion").cfg.body_names
    assert terms["body_pos"] == Term.bodies("body_pos", bodies, 3)
    assert terms["body_ori"] == Term.bodies("body_ori", bodies, 6)
    assert terms["motion_anchor_pos_b"].kind == "root"


def write_motion(folder) -> str:
    """A G1 that stands still: 29 joints, 30 bodies."""
    frames, path = 60, folder / "motion.npz"
    quat = np.zeros((frames, 30, 4), np.float32)
    quat[..., 0] = 1.0
    zeros = {"joint_pos": (29,), "joint_vel": (29,), "body_lin_vel_w": (30, 3), "body_ang_vel_w": (30, 3)}
    arrays = {name: np.zeros((frames, *shape), np.float32) for name, shape in zeros.items()}
    height = np.tile(np.array([0.0, 0.0, 0.8], np.float32), (frames, 30, 1))
    np.savez(path, fps=50, body_pos_w=height, body_quat_w=quat, **arrays)
    return str(path)
