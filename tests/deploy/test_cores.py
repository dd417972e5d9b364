"""The processor cores of the loop and of the simulated robot."""

import os
import subprocess
import sys

import pytest

from body_transformer.cli.deploy import entered
from body_transformer.deploy.real_time import only_on, split_cores
from body_transformer.deploy.robot import Robot
from body_transformer.deploy.robots import open_robot

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a program choose")
HERE = frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def test_the_loop_has_one_core_and_the_robot_the_others():
    mine, others = split_cores()
    assert mine | others == HERE
    assert len(mine) == 1
    assert not mine & others or len(HERE) == 1


def test_a_single_core_is_shared():
    with only_on(frozenset({min(HERE)})):
        assert split_cores() == (frozenset({min(HERE)}),) * 2


def test_a_child_process_stays_on_its_core_and_this_process_does_not():
    one = frozenset({min(HERE)})
    code = "import os; print(*os.sched_getaffinity(0))"
    with only_on(one):
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert frozenset(map(int, child.split())) == one
    assert os.sched_getaffinity(0) == HERE


def test_after_an_error_the_cores_are_restored():
    with pytest.raises(RuntimeError), only_on(frozenset({min(HERE)})):
        raise RuntimeError
    assert os.sched_getaffinity(0) == HERE


def test_the_simulated_robot_runs_on_other_cores_than_the_loop():
    pytest.importorskip("mujoco")
    robot = open_robot("sim")
    with entered(robot) as mine:
        assert (mine, os.sched_getaffinity(robot.process.pid)) == split_cores()
        assert os.sched_getaffinity(0) == HERE  # the loop moves to its core when it runs
    assert not robot.alive


def test_for_a_robot_elsewhere_the_loop_may_run_on_any_core():
    left = []

    class Elsewhere(Robot):
        read = send = None

        def __exit__(self, *exc):
            left.append(exc[0])

    with entered(Elsewhere()) as mine:
        assert (mine, left) == (frozenset(), [])
    assert left == [None]
