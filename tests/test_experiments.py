"""The experiments: entries belong to the nodes of the authors' code, and terms are those of the environments."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from body_transformer import experiment
from body_transformer.body.graph import BodyGraph
from body_transformer.body.layout import Layout, Term
from body_transformer.experiment import experiment_names, load_experiment

HUMANOID = ["humanoid-mod", "humanoid-hill", "humanoid-board"]
Ids = dict[str, list[int]]


def spans(*pairs: tuple[int, int]) -> list[int]:
    """(0, 2), (7, 8) -> 0, 1, 2, 7, 8"""
    return [k for first, last in pairs for k in range(first, last + 1)]


def allocation(layout: Layout) -> tuple[Ids, Ids]:
    nodes = layout.graph.nodes
    return {node: layout.obs_ids(node) for node in nodes}, {node: layout.action_ids(node) for node in nodes}


# -- Adroit ------------------------------------------------------------------------------------------------------------

FINGERS = [
    *(f"{finger}{part}" for finger in ("ff", "mf", "rf") for part in ("knuckle", "proximal", "middle", "distal")),
    *(f"lf{part}" for part in ("metacarpal", "knuckle", "proximal", "middle", "distal")),
    *(f"th{part}" for part in ("base", "proximal", "hub", "middle", "distal")),
]
# (observations, actions) of the arm, the wrist and the palm, and the first ones of the fingers. The authors call the
# forearm `forehand`.
ADROIT_ENTRIES = {
    "door": {
        "forearm": (spans((0, 2), (27, 28), (32, 34), (38, 38)), spans((0, 3))),
        "wrist": ([3], [4]),
        "palm": (spans((4, 4), (29, 31), (35, 37)), [5]),
        "fingers": (5, 6),
    },
    "hammer": {
        "forearm": (spans((0, 1), (26, 32), (36, 45)), [0, 1]),
        "wrist": ([2], [2]),
        "palm": (spans((3, 3), (33, 35)), [3]),
        "fingers": (4, 4),
    },
    "relocate": {
        "forearm": (spans((0, 5), (36, 38)), spans((0, 5))),
        "wrist": ([6], [6]),
        "palm": (spans((7, 7), (30, 35)), [7]),
        "fingers": (8, 8),
    },
}


@pytest.mark.parametrize("task", ADROIT_ENTRIES)
def test_adroit_entries_belong_to_the_same_nodes_as_the_authors(task):
    entries = dict(ADROIT_ENTRIES[task])
    obs, action = entries.pop("fingers")
    entries |= {finger: ([obs + k], [action + k]) for k, finger in enumerate(FINGERS)}
    layout = load_experiment(f"adroit-{task}").layout()
    assert list(layout.graph.nodes) == list(entries)
    assert allocation(layout) == ({n: o for n, (o, _) in entries.items()}, {n: a for n, (_, a) in entries.items()})


def euler(quat):
    from gymnasium_robotics.utils.rotations import quat2euler

    return quat2euler(quat)


# Values of the terms beside the joints, read from the simulation.
ADROIT_TERMS = {
    "door": {
        "latch_pos": lambda d: d.joint("latch").qpos,
        "door_pos": lambda d: d.joint("door_hinge").qpos,
        "palm_pos": lambda d: d.site("S_grasp").xpos,
        "handle_pos": lambda d: d.site("S_handle").xpos,
        "palm_minus_handle": lambda d: d.site("S_grasp").xpos - d.site("S_handle").xpos,
        "door_open": lambda d: np.where(d.joint("door_hinge").qpos > 1, 1.0, -1.0),
    },
    "hammer": {
        "nail_pos": lambda d: d.joint("nail_dir").qpos,
        "hammer_vel": lambda d: np.clip(d.qvel[-6:], -1, 1),
        "palm_pos": lambda d: d.site("S_grasp").xpos,
        "hammer_pos": lambda d: d.body("Object").xpos,
        "hammer_rot": lambda d: euler(d.body("Object").xquat),
        "target_pos": lambda d: d.site("S_target").xpos,
        "nail_impact": lambda d: np.clip(d.sensor("S_nail").data, -1, 1),
    },
    "relocate": {
        "palm_minus_ball": lambda d: d.site("S_grasp").xpos - d.body("Object").xpos,
        "palm_minus_target": lambda d: d.site("S_grasp").xpos - d.site("target").xpos,
        "ball_minus_target": lambda d: d.body("Object").xpos - d.site("target").xpos,
    },
}


@pytest.mark.parametrize("task", ADROIT_TERMS)
def test_adroits_terms_are_what_the_environment_observes(task):
    pytest.importorskip("gymnasium_robotics")
    import gymnasium
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    layout = load_experiment(f"adroit-{task}").layout()
    (joints,) = (term for term in layout.obs if term.name == "joint_pos")
    terms = ADROIT_TERMS[task] | {"joint_pos": lambda d: np.concatenate([d.joint(name).qpos for name in joints.of])}
    assert {term.name for term in layout.obs} == set(terms)

    env = gymnasium.make(f"AdroitHand{task.title()}-v1")
    assert env.observation_space.shape == (layout.obs_dim,)
    assert env.action_space.shape == (layout.action_dim,)
    data, model = env.unwrapped.data, env.unwrapped.model
    assert [model.actuator(k).name for k in range(model.nu)] == list(layout.actions[0].of)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(5):
        obs = env.step(env.action_space.sample())[0]
        for name, value in terms.items():
            np.testing.assert_array_equal(obs[layout.obs_slices[name]], value(data), err_msg=name)
    env.close()


# -- the humanoid ------------------------------------------------------------------------------------------------------

HUMANOID_NODES = [
    "torso", "head", "lower_waist", "pelvis",
    "right_thigh", "right_shin", "right_foot", "left_thigh", "left_shin", "left_foot",
    "right_upper_arm", "right_lower_arm", "right_hand", "left_upper_arm", "left_lower_arm", "left_hand",
]  # fmt: skip
HUMANOID_OBS = [13, 3, 7, 5, 9, 5, 7, 9, 5, 7, 7, 5, 3, 7, 5, 3]
HUMANOID_ACTIONS = [0, 0, 2, 1, 3, 1, 2, 3, 1, 2, 2, 1, 0, 2, 1, 0]


@pytest.mark.parametrize("name", HUMANOID)
def test_the_humanoids_entries_belong_to_the_same_nodes_as_the_authors(name):
    layout = load_experiment(name).layout()
    assert list(layout.graph.nodes) == HUMANOID_NODES
    obs, actions = allocation(layout)
    assert [len(ids) for ids in obs.values()] == HUMANOID_OBS
    assert [len(ids) for ids in actions.values()] == HUMANOID_ACTIONS
    assert [k for ids in actions.values() for k in ids] == list(range(21))  # in the order of the joints
    for k, (node, ids) in enumerate(obs.items()):
        own = list(range(10)) if node == "torso" else []
        moving = [10 + j for j in actions[node]] + [31 + j for j in actions[node]]
        assert ids == own + moving + [52 + 3 * k, 53 + 3 * k, 54 + 3 * k]


def test_the_humanoid_has_the_body_of_dm_control():
    suite = pytest.importorskip("dm_control.suite")
    real = BodyGraph.from_file(Path(suite.__path__[0], "humanoid.xml"))
    ours = load_experiment("humanoid-mod").robot.graph()
    assert (ours.nodes, ours.edges) == (real.nodes, real.edges)
    assert {k: v for k, v in ours.joints.items() if v != "torso"} == {
        k: v for k, v in real.joints.items() if v != "torso"
    }


# -- A1 ----------------------------------------------------------------------------------------------------------------


def test_the_a1s_entries_belong_to_the_same_nodes_as_the_authors():
    layout = load_experiment("a1-walk").layout()
    obs, actions = allocation(layout)
    assert obs.pop("trunk") == list(range(12))
    assert actions.pop("trunk") == []
    order = [f"{leg}_{part}" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")]
    assert obs == {node: [12 + k, 24 + k, 36 + k] for k, node in enumerate(order)}
    assert actions == {node: [k] for k, node in enumerate(order)}


def test_the_a1s_graph_is_that_of_the_authors_urdf(a1_urdf):
    real = BodyGraph.from_file(a1_urdf, fixed="merge")
    ours = load_experiment("a1-walk").robot.graph()

    def renamed(edges):
        return {tuple("trunk" if name == "base" else name for name in edge) for edge in edges}

    assert set(ours.edges) == renamed(real.edges)
    assert {k: v for k, v in ours.joints.items() if v != "trunk"} == dict(real.joints)


# -- MoCapAct ----------------------------------------------------------------------------------------------------------

SIDED = {"femur": 3, "tibia": 1, "foot": 2, "toes": 1, "clavicle": 2, "humerus": 3, "radius": 1, "wrist": 1, "hand": 2}
SIDED |= {"fingers": 1, "thumb": 2, "hipjoint": 0}
MIDDLE = {"root": 0, "face": 0} | dict.fromkeys(
    ("lowerback", "upperback", "thorax", "lowerneck", "upperneck", "head"), 3
)
MOCAP_ACTIONS = MIDDLE | {side + part: count for side in "lr" for part, count in SIDED.items()}
MOCAP_MORE = {
    side + part: count
    for side in "lr"
    for part, count in {
        "foot": 3 + 1, "radius": 3, "humerus": 3, "toes": 1, "hand": 1, "fingers": 1, "thumb": 1,
    }.items()
}  # fmt: skip
"""End effectors and torques have three entries, touch has one."""


def test_mocapacts_entries_belong_to_the_same_nodes_as_the_authors():
    layout = load_experiment("mocapact").layout()
    obs, actions = allocation(layout)
    assert {node: len(ids) for node, ids in actions.items()} == MOCAP_ACTIONS
    per_node = {node: 35 + 3 * count + MOCAP_MORE.get(node, 0) for node, count in MOCAP_ACTIONS.items()} | {"root": 13}
    assert {node: len(ids) for node, ids in obs.items()} == per_node
    assert sum(per_node.values()) == 1294


def test_mocapacts_terms_and_actions_are_in_alphabetical_order():
    experiment = load_experiment("mocapact")
    names = [term.name for term in experiment.obs]
    assert names == sorted(names)
    _, actions = allocation(experiment.layout())
    assert [k for node in sorted(actions) for k in actions[node]] == list(range(56))


def test_mocapacts_root_has_its_own_sensors_and_nothing_else():
    layout = load_experiment("mocapact").layout()
    names = [re.sub(r"\.\d", "", layout.obs_names()[k]) for k in layout.obs_ids("root")]
    sensors = ["gyro_control", "sensors_gyro", "sensors_velocimeter", "world_zaxis"]
    assert names == ["body_height", *(name for name in sensors for _ in range(3))]


def test_each_mocapact_body_has_its_own_reference_at_every_step():
    layout = load_experiment("mocapact").layout()
    names = layout.obs_names()
    quats = [names[k] for k in layout.obs_ids("face") if names[k].startswith("reference_rel_bodies_quats")]
    assert quats == [f"reference_rel_bodies_quats@{step}[face].{k}" for step in range(5) for k in range(4)]
    positions = layout.obs_slices["reference_rel_bodies_pos_local"]
    first = layout.obs_node_ids[positions][: 31 * 3]
    np.testing.assert_array_equal(layout.obs_node_ids[positions], np.tile(first, 5))


def mocap_terms() -> dict[str, Term]:
    return {term.name: term for term in load_experiment("mocapact").obs}


def test_mocapacts_names_are_the_walkers_in_its_order(cmu_walker):
    walker, terms, sensors = cmu_walker, mocap_terms(), cmu_walker.mjcf_model.sensor
    joints = tuple(joint.name for joint in walker.observable_joints)
    assert terms["joints_pos"].of == terms["joints_vel"].of == joints
    assert terms["actuator_activation"].of == tuple(actuator.joint.name for actuator in walker.actuators)
    assert load_experiment("mocapact").actions[0].of == tuple(actuator.joint.name for actuator in walker.actuators)
    assert terms["end_effectors_pos"].of == tuple(body.name for body in walker.end_effectors)
    assert terms["sensors_touch"].of == tuple(sensor.site.parent.name for sensor in sensors.touch)
    assert terms["sensors_torque"].of == tuple(sensor.site.parent.name for sensor in sensors.torque)
    bodies = tuple(body.name for body in walker.mocap_tracking_bodies)
    assert terms["reference_rel_bodies_pos_local"].of == terms["reference_rel_bodies_quats"].of == bodies


def test_mocapacts_terms_have_the_sizes_of_the_walkers_observables(cmu_walker):
    from dm_control import mjcf

    physics = mjcf.Physics.from_mjcf_model(cmu_walker.mjcf_model)
    observables = cmu_walker.observables.as_dict()
    shared = {name: term for name, term in mocap_terms().items() if name in observables}
    random = np.random.RandomState(0)
    assert len(shared) == 23
    assert {name: np.size(observables[name](physics, random)) for name in shared} == {
        name: term.size for name, term in shared.items()
    }


# -- reading experiments -----------------------------------------------------------------------------------------------


def test_an_unknown_experiment_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError,
        match=r"^unknown experiment 'adroit-dor'; did you mean 'adroit-door'\? have: 'a1-command', 'a1-walk'",
    ):
        load_experiment("adroit-dor")


def test_a_variant_may_have_settings_of_its_own():
    door = load_experiment("adroit-door")
    assert (door.policy_config("mlp").embed_dim, door.policy_config("mlp").variant) == (64, "mlp")
    assert (door.policy_config("bot-mix").embed_dim, door.policy_config().variant) == (320, "bot-hard")
    with pytest.raises(ValueError, match=r"^unknown variant 'bot-hrad'; did you mean 'bot-hard'\? have: "):
        door.policy_config("bot-hrad")


def test_an_experiment_differs_from_its_base_in_its_own_keys_only():
    mod, hill = load_experiment("humanoid-mod"), load_experiment("humanoid-hill")
    assert (mod.policy.num_layers, hill.policy.num_layers) == (10, 12)
    assert replace(mod.policy, num_layers=12) == hill.policy
    assert (mod.obs, mod.actions, mod.robot) == (hill.obs, hill.actions, hill.robot)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that replaces the shipped experiments by a1-walk with changes."""
    text = Path(experiment.__file__).with_name("experiments").joinpath("a1-walk.yaml").read_text(encoding="utf-8")
    (tmp_path / "experiments").mkdir()
    monkeypatch.setattr(experiment, "files", lambda package: tmp_path)

    def write(change):
        data = yaml.safe_load(text)
        change(data)
        (tmp_path / "experiments" / "mine.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")

    return write


def test_a_users_experiment_is_read(write):
    write(lambda data: data.update(title="Mine"))
    assert experiment_names() == ["mine"]
    assert load_experiment("mine").title == "Mine"
    assert load_experiment("mine").layout().obs_dim == 48


def test_an_experiment_file_may_be_anywhere_and_name_a_robot_beside_it(tmp_path):
    robot = "<mujoco><worldbody><body name='pole'><joint name='hinge'/></body></worldbody></mujoco>"
    (tmp_path / "robots").mkdir()
    (tmp_path / "robots" / "pole.xml").write_text(robot, encoding="utf-8")
    term = {"name": "joint", "kind": "joints", "of": ["hinge"]}
    mine = {"base": "humanoid-mod", "title": "Mine", "robot": {"file": "robots/pole.xml"}}
    mine |= {"obs_dim": 1, "obs": [term], "action_dim": 1, "actions": [term]}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(mine), encoding="utf-8")
    (tmp_path / "larger.yml").write_text("{base: mine.yaml, policy: {num_layers: 3}}", encoding="utf-8")
    found = load_experiment(tmp_path / "larger.yml")
    assert (found.name, found.title, found.policy.num_layers) == ("larger", "Mine", 3)
    assert found.layout().graph.nodes == ("pole",)
    with pytest.raises(
        FileNotFoundError, match=r"no experiment at '.*yours.yaml'; the shipped ones are 'a1-command', "
    ):
        load_experiment(tmp_path / "yours.yaml")


WRONG = {
    "key": (lambda data: data.update(action=1), "unknown key 'action'"),
    "robot's key": (lambda data: data["robot"].update(rot="trunk"), "unknown key 'rot'; did you mean 'root'?"),
    "term's key": (lambda data: data["obs"][0].update(size=1), "unknown key 'size'"),
    "variant": (lambda data: data.update(variants={"mpl": {"mlp_dim": 1}}), "unknown variant 'mpl'"),
    "variant's key": (lambda data: data.update(variants={"mlp": {"mlp_dims": 1}}), "'mlp_dims'"),
    "size as text": (lambda data: data.update(obs_dim="48"), "obs_dim must be a whole number; got '48'"),
    "a term that is a word": (lambda data: data.update(obs=["gravity"]), "obs[0] must be a mapping"),
    "a list of variants": (lambda data: data.update(variants=["mlp"]), "variants must be a mapping of keys"),
    "its own base": (lambda data: data.update(base="mine"), "experiments are each other's base: mine -> mine"),
    "an unknown base": (lambda data: data.update(base="yours"), "unknown experiment 'yours'"),
    "missing": (lambda data: data.pop("obs_dim"), "obs_dim"),
    "size": (lambda data: data.update(obs_dim=50), "has 50 entries and the terms cover 48: entries 48 to 49"),
    "robot": (lambda data: data["robot"].update(file="a2"), "unknown robot 'a2'; have: 'a1', 'adroit_door', "),
    "root": (lambda data: data["robot"].update(root="trunc"), "unknown root body 'trunc'; did you mean 'trunk'?"),
    "joint": (lambda data: data["obs"][4]["of"].__setitem__(0, "FL_hip_joints"), "unknown joint 'FL_hip_joints'; did "),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_experiment_is_an_error_of_one_sentence(write, change, message):
    write(change)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        load_experiment("mine").layout()
    said = str(caught.value)
    assert said.splitlines() == [said]
    assert message in said
    assert "Error(" not in said, "the message is the representation of a Python error"


@pytest.mark.parametrize("text", ["", "just words", "a: [1", "- a list"])
def test_a_file_that_does_not_hold_a_mapping_is_an_error(write, tmp_path, text):
    (tmp_path / "experiments" / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"^experiment 'mine' (is not YAML|must be a mapping).*$"):
        load_experiment("mine")
