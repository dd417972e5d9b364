"""The A1 through docs/robot_interface.cpp, compiled against a stand-in for Unitree's SDK."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from body_transformer.deploy.robot import Command
from body_transformer.deploy.robots import open_robot

ROOT = Path(__file__).parents[2]
ONES = np.ones(12)


def headers() -> list[str]:
    """Return the compiler's options for the headers of Python and of pybind11, which PyTorch contains."""
    import torch

    places = [Path(torch.__file__).parent / "include", Path(sysconfig.get_paths()["include"])]
    if not (places[0] / "pybind11/pybind11.h").is_file() or not (places[1] / "Python.h").is_file():
        pytest.skip("no headers of pybind11 or Python")
    return [f"-I{place}" for place in places]


@pytest.fixture(scope="module", params=["", "-DSTD_ARRAY -DVOID_PROTECT"], ids=["C arrays", "std::array and void"])
def module(request, tmp_path_factory):
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    place = tmp_path_factory.mktemp("binding")
    (place / "unitree_legged_sdk").mkdir()
    shutil.copy(Path(__file__).parent / "unitree_legged_sdk.h", place / "unitree_legged_sdk")
    built = place / f"robot_interface{sysconfig.get_config_var('EXT_SUFFIX')}"
    options = ["-O0", "-shared", "-fPIC", "-std=c++17", *request.param.split(), f"-I{place}", *headers()]
    command = [compiler, *options, str(ROOT / "docs/robot_interface.cpp"), "-o", str(built)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    spec = importlib.util.spec_from_file_location("robot_interface", built)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_a1_is_read_moved_limited_and_stopped_through_the_binding(module, monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_interface", module)
    with open_robot("a1", position_margin_rad=0.087, damping_s=0.0) as robot:
        state = robot.read()
        np.testing.assert_array_equal(state.joint_pos, [0.0, 1.0, -1.75] * 4)
        np.testing.assert_array_equal(state.quaternion, [1.0, 0.0, 0.0, 0.0])
        wanted = np.array([0.9, 1.25, -1.5] * 4)
        back = robot.send(Command(wanted, 0 * ONES, 100 * ONES, ONES, 0 * ONES))
        np.testing.assert_allclose(back.position, [0.802, 1.25, -1.5] * 4, rtol=1e-6)
        np.testing.assert_array_equal(robot.read().joint_pos, back.position)
        robot.send(Command(wanted, 0 * ONES, 100 * ONES, ONES, 7 * ONES))
        robot.read()
        assert robot.tripped == "B on the remote"
        np.testing.assert_array_equal(robot.send(Command(wanted, 0 * ONES, 100 * ONES, ONES, 0 * ONES)).kp, 0.0)
