"""Robot files of other packages, and small descriptions with features of real robots."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from body_transformer import robots
from body_transformer.body.graph import BodyGraph
from body_transformer.body.layout import Layout


def file_of(package: str, path: str) -> Path:
    """Return a file of an installed package, without importing the package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0], path)


def check(graph: BodyGraph) -> None:
    """Check the properties that every robot's graph has."""
    assert graph.root in graph.nodes
    assert len(graph.edges) == graph.num_nodes - len(graph.roots)  # with the next line: connected, no loop
    assert (graph.hops < graph.num_nodes).all()
    assert graph.mask.any(axis=1).all()
    assert graph.mask.diagonal().all()
    for places in (graph.joints, graph.actuators, graph.bodies):
        assert set(places.values()) <= set(graph.nodes)
    assert graph.joint_types.keys() == graph.joints.keys()
    assert BodyGraph.from_dict(graph.to_dict()) == graph


# -- the robots of the paper, from their own files ---------------------------------------------------------------------


def check_papers(graph: BodyGraph, *numbers: float) -> None:
    check(graph)
    assert (graph.num_nodes, graph.num_ones, round(graph.sparsity, 4), graph.diameter) == numbers


@pytest.mark.parametrize("task", ["door", "hammer", "relocate"])
def test_adroits_files_give_the_papers_graph(task):
    path = file_of("gymnasium_robotics", f"envs/assets/adroit_hand/adroit_{task}.xml")
    check_papers(BodyGraph.from_file(path, root="forearm"), 25, 73, 0.8832, 10)


def test_the_other_robots_of_the_paper_give_its_graphs(cmu_walker):
    check_papers(BodyGraph.from_xml(cmu_walker.mjcf_model.to_xml_string()), 32, 94, 0.9082, 14)
    check_papers(BodyGraph.from_file(file_of("dm_control", "suite/humanoid.xml")), 16, 46, 0.8203, 8)
    check_papers(BodyGraph.from_file(robots.path("a1")), 13, 37, 0.7811, 6)


def test_the_authors_a1_gives_the_papers_graph_and_has_nodes_for_fixed_links_if_they_are_kept(a1_urdf):
    graph = BodyGraph.from_file(a1_urdf, fixed="merge")
    check_papers(graph, 13, 37, 0.7811, 6)
    assert BodyGraph.from_file(a1_urdf).num_nodes == 23
    merged = graph.bodies
    assert (merged["trunk"], merged["imu_link"], merged["FR_foot"]) == ("base", "base", "FR_calf")


# -- files of other packages -------------------------------------------------------------------------------------------


@dataclass
class Robot:
    """A file and its contents."""

    package: str
    path: str
    root: str | None
    nodes: int
    merged: int
    """Nodes if bodies without a joint merge into their parents."""
    diameter: int
    joints: int
    actuators: int
    obs: int
    """Entries of the proprioceptive observation."""
    actions: int


ROBOTS = [
    Robot("dm_control", "suite/dog.xml", "torso", 61, 56, 38, 74, 38, 152, 38),
    Robot("dm_control", "suite/quadruped.xml", "torso", 17, 13, 8, 17, 12, 38, 12),
    Robot("dm_control", "suite/fish.xml", None, 5, 5, 3, 8, 5, 20, 5),
    Robot("dm_control", "suite/manipulator.xml", "upper_arm", 9, 8, 5, 8, 5, 16, 5),
    Robot("dm_control", "suite/swimmer.xml", None, 1, 1, 0, 3, 0, 6, 3),
    Robot("dm_control", "locomotion/walkers/assets/fruitfly_v2/fruitfly.xml", None, 67, 67, 16, 103, 78, 210, 78),
    Robot("dm_control", "locomotion/walkers/assets/rodent.xml", None, 65, 52, 46, 67, 38, 134, 38),
    Robot("dm_control", "third_party/kinova/jaco_arm.xml", None, 7, 7, 6, 6, 0, 12, 6),
    Robot("gymnasium", "envs/mujoco/assets/ant.xml", None, 13, 9, 6, 9, 8, 22, 8),
    Robot("gymnasium", "envs/mujoco/assets/pusher_v5.xml", "r_shoulder_pan_link", 10, 7, 9, 7, 7, 14, 7),
    Robot("gymnasium_robotics", "envs/assets/hand/reach.xml", "robot0:hand mount", 26, 25, 10, 24, 20, 48, 20),
    Robot("gymnasium_robotics", "envs/assets/fetch/reach.xml", "robot0:base_link", 28, 13, 16, 15, 0, 30, 15),
    Robot("mjlab", "asset_zoo/robots/unitree_go1/xmls/go1.xml", None, 13, 13, 6, 13, 0, 30, 12),
    Robot("mjlab", "asset_zoo/robots/unitree_g1/xmls/g1.xml", None, 30, 30, 16, 30, 0, 64, 29),
    Robot("mjlab", "asset_zoo/robots/i2rt_yam/xmls/yam.xml", None, 15, 9, 9, 8, 0, 14, 7),
]


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: Path(robot.path).stem)
def test_a_robot_of_another_package_becomes_a_graph_and_a_layout(robot):
    path = file_of(robot.package, robot.path)
    graph = BodyGraph.from_file(path, root=robot.root)
    merged = BodyGraph.from_file(path, root=robot.root, fixed="merge", equality_edges=True)
    check(graph)
    check(merged)
    assert (graph.num_nodes, merged.num_nodes, graph.diameter) == (robot.nodes, robot.merged, robot.diameter)
    assert (len(graph.joints), len(graph.actuators)) == (robot.joints, robot.actuators)
    assert (merged.joints.keys(), merged.actuators.keys()) == (graph.joints.keys(), graph.actuators.keys())
    for body in (graph, merged):
        layout = Layout.proprioceptive(body)
        assert (layout.obs_dim, layout.action_dim) == (robot.obs, robot.actions)


# -- small descriptions with features of real robots -------------------------------------------------------------------

FOUR_BAR = """<mujoco model="closed-chain leg">
  <worldbody><body name="base"><freejoint name="floating"/>
    <body name="crank"><joint name="motor"/><body name="coupler"><joint name="elbow"/><site name="pin"/></body></body>
    <body name="rocker"><joint name="knee"/><site name="hole"/><body name="foot"/></body>
  </body></worldbody>
  <equality><connect name="pin" site1="pin" site2="hole"/></equality>
  <actuator><motor name="motor" joint="motor"/></actuator>
</mujoco>"""

GRIPPER = """<mujoco model="arm with a parallel gripper">
  <default><joint range="-1 1"/><default class="finger"><joint type="slide" axis="1 0 0"/></default></default>
  <worldbody><body name="link1"><joint name="joint1"/><body name="link2"><joint name="joint2"/>
    <body name="hand">
      <body name="left_finger" childclass="finger"><joint name="left"/></body>
      <body name="right_finger" childclass="finger"><joint name="right"/></body>
    </body></body></body></worldbody>
  <tendon><fixed name="split"><joint joint="left" coef=".5"/><joint joint="right" coef=".5"/></fixed></tendon>
  <equality><joint joint1="left" joint2="right"/></equality>
  <actuator>
    <position name="act1" joint="joint1"/><position name="act2" joint="joint2"/><general name="grip" tendon="split"/>
  </actuator>
</mujoco>"""

CASSIE = """<mujoco model="Cassie-like leg: two rods close two loops, springs are joints without a motor">
  <worldbody><body name="pelvis"><freejoint/>
    <body name="hip-roll"><joint name="hip-roll"/><body name="hip-yaw"><joint name="hip-yaw"/>
      <body name="hip-pitch"><joint name="hip-pitch"/>
        <body name="achilles-rod"><joint name="achilles-rod" type="ball"/></body>
        <body name="knee"><joint name="knee"/>
          <body name="knee-spring"><joint name="knee-spring"/></body>
          <body name="shin"><joint name="shin"/><body name="tarsus"><joint name="tarsus"/>
            <body name="heel-spring"><joint name="heel-spring"/></body>
            <body name="foot-crank"><joint name="foot-crank"/>
              <body name="plantar-rod"><joint name="plantar-rod"/></body></body>
            <body name="foot"><joint name="foot"/></body></body></body></body></body></body></body></body></worldbody>
  <equality>
    <connect body1="plantar-rod" body2="foot" anchor="0.35 0 0"/>
    <connect body1="achilles-rod" body2="heel-spring" anchor="0.5 0 0"/>
  </equality>
  <actuator>
    <motor name="roll" joint="hip-roll"/><motor name="yaw" joint="hip-yaw"/><motor name="pitch" joint="hip-pitch"/>
    <motor name="knee" joint="knee"/><motor name="crank" joint="foot-crank"/>
  </actuator>
</mujoco>"""

MASSLESS = """<robot name="massless base, meshes of a ROS package">
  <link name="base_footprint"/>
  <link name="base_link">
    <inertial><mass value="3"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><mesh filename="package://robot_description/meshes/base.dae" scale="1 1 1"/></geometry></visual>
    <collision><geometry><mesh filename="package://robot_description/meshes/base.stl"/></geometry></collision></link>
  <link name="wheel"/>
  <joint name="footprint" type="fixed"><parent link="base_footprint"/><child link="base_link"/></joint>
  <joint name="drive" type="continuous"><parent link="base_link"/><child link="wheel"/><axis xyz="0 1 0"/></joint>
  <transmission name="t"><type>transmission_interface/SimpleTransmission</type><joint name="drive"/></transmission>
  <gazebo reference="wheel"><mu1>1</mu1></gazebo>
</robot>"""

SMALL = {
    # name: (text, root, nodes, nodes if merged, closed loops, actuator -> node, observations, actions)
    "four-bar leg": (FOUR_BAR, "base", 5, 4, [("coupler", "rocker")], {"motor": "crank"}, 12, 1),
    "parallel gripper": (
        GRIPPER, "link1", 5, 4, [], {"act1": "link1", "act2": "link2", "grip": "hand"}, 6, 3,
    ),
    "Cassie-like leg": (
        CASSIE, "pelvis", 13, 13, [("plantar-rod", "foot"), ("achilles-rod", "heel-spring")],
        {"roll": "hip-roll", "yaw": "hip-yaw", "pitch": "hip-pitch", "knee": "knee", "crank": "foot-crank"}, 35, 5,
    ),
    "massless base": (MASSLESS, "base_footprint", 3, 2, [], {}, 8, 1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "root", "nodes", "merged", "loops", "motors", "obs", "actions"), SMALL.values(), ids=SMALL
)
def test_a_small_robot_becomes_a_graph_and_a_layout(text, root, nodes, merged, loops, motors, obs, actions):
    graph = BodyGraph.from_xml(text, equality_edges=True)
    check(graph)
    assert (graph.root, graph.num_nodes, list(graph.extra_edges)) == (root, nodes, loops)
    assert graph.actuators == motors
    assert graph.num_ones == nodes + 2 * (nodes - 1 + len(loops))
    assert BodyGraph.from_xml(text, fixed="merge").num_nodes == merged
    layout = Layout.proprioceptive(graph)
    assert (layout.obs_dim, layout.action_dim) == (obs, actions)


def test_a_closed_loop_shortens_the_path():
    open_leg, closed_leg = BodyGraph.from_xml(FOUR_BAR), BodyGraph.from_xml(FOUR_BAR, equality_edges=True)
    ends = closed_leg.index("coupler"), closed_leg.index("rocker")
    assert (open_leg.hops[ends], closed_leg.hops[ends]) == (3, 1)
    assert not open_leg.mask[ends]
    assert closed_leg.mask[ends]


def test_a_gripper_on_a_merged_hand_belongs_to_the_arm():
    assert BodyGraph.from_xml(GRIPPER, fixed="merge").actuators["grip"] == "link2"
