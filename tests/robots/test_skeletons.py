"""The skeletons of other packages' robots against the real ones."""

import re
from pathlib import Path

import mujoco
import pytest

from body_transformer import robots

NAMES = ["a1", "adroit_door", "adroit_hammer", "adroit_relocate", "cmu_humanoid", "humanoid"]
TASKS = ("door", "hammer", "relocate")

Tree = list[tuple[str, str | None, list[tuple[str, int]]]]


def tree(spec: mujoco.MjSpec, root: str) -> Tree:
    """Return (body, parent, its joints with their types), depth first below `root`."""
    found: Tree = []

    def walk(body: mujoco.MjsBody, parent: str | None) -> None:
        found.append((body.name, parent, [(joint.name, int(joint.type)) for joint in body.joints]))
        for child in body.bodies:
            walk(child, body.name)

    walk(spec.body(root), None)
    return found


def actuators(spec: mujoco.MjSpec) -> list[tuple[str, str, int]]:
    return [(actuator.name, actuator.target, int(actuator.trntype)) for actuator in spec.actuators]


def shipped(name: str) -> mujoco.MjSpec:
    return mujoco.MjSpec.from_file(str(robots.path(name)))


@pytest.fixture(scope="module")
def walker(cmu_walker) -> mujoco.MjSpec:
    text = cmu_walker.mjcf_model.to_xml_string()
    return mujoco.MjSpec.from_string(re.sub(r"<asset>.*?</asset>", "", text, flags=re.DOTALL))  # files it lacks here


@pytest.fixture(scope="module", params=TASKS)
def task(request: pytest.FixtureRequest) -> tuple[mujoco.MjSpec, mujoco.MjSpec]:
    """Return (ours, the environment's) of one Adroit task."""
    gymnasium_robotics = pytest.importorskip("gymnasium_robotics")
    assets = Path(gymnasium_robotics.__path__[0]) / "envs" / "assets" / "adroit_hand"
    real = mujoco.MjSpec.from_file(str(assets / f"adroit_{request.param}.xml"))
    return shipped(f"adroit_{request.param}"), real


def test_the_cmu_skeleton_has_the_walkers_bodies_and_joints(walker):
    ours = tree(shipped("cmu_humanoid"), "root")
    assert len(ours) == 32
    assert ours == tree(walker, "root")


def test_the_cmu_skeleton_has_the_walkers_actuators(walker):
    ours = actuators(shipped("cmu_humanoid"))
    assert len(ours) == 56
    assert ours == sorted(ours)
    assert ours == actuators(walker)


def test_an_adroit_skeleton_has_the_environments_bodies_and_joints(task):
    ours, real = task
    assert len(tree(ours, "forearm")) == 25
    assert tree(ours, "forearm") == tree(real, "forearm")


def test_an_adroit_skeleton_has_the_environments_actuators(task):
    ours, real = task
    assert actuators(ours) == actuators(real)


def test_the_shipped_robots_are_listed_without_their_parts():
    assert robots.names() == NAMES
    assert all(robots.path(name).is_file() for name in NAMES)


@pytest.mark.parametrize("name", ["humanoyd", "adroit_hand_bodies", ""])
def test_an_unknown_robot_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=f"unknown robot '{name}'.*'cmu_humanoid', 'humanoid'"):
        robots.path(name)
