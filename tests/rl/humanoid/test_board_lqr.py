"""benchmarks/board_lqr.py: the pose is in balance, the regulator keeps it, and the tables show the results."""

import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")
pytest.importorskip("scipy")

FILE = Path(__file__).parents[3] / "benchmarks" / "board_lqr.py"


@pytest.fixture(scope="module")
def board_lqr(benchmark_script):
    return benchmark_script("board_lqr")


@pytest.fixture(scope="module")
def trial(board_lqr):
    torch.set_num_threads(1)
    made = board_lqr.Trial(num_episodes=4, num_threads=1, seed=1)
    yield made
    made.env.close()


def test_the_pose_is_in_balance(trial):
    data = mujoco.MjData(trial.model)
    data.qpos, data.ctrl = trial.pose, trial.hold
    mujoco.mj_step(trial.model, data, nstep=10)
    assert np.abs(data.qpos - trial.pose).max() < 2e-3
    assert np.abs(trial.hold).max() < 0.5
    feet = {k for k in range(trial.model.ngeom) if "foot" in trial.model.geom(k).name}
    touching = {int(k) for k in data.contact.geom.flatten()}
    assert feet <= touching


def test_the_linear_map_is_the_physics_of_a_control_step(trial, board_lqr):
    _, b = board_lqr.linearised(trial.model, trial.pose, trial.hold)
    change = np.zeros(trial.model.nu)
    change[4] = 1e-3
    ends = []
    for ctrl in (trial.hold, trial.hold + change):
        data = mujoco.MjData(trial.model)
        data.qpos, data.ctrl = trial.pose, ctrl
        mujoco.mj_step(trial.model, data, nstep=2)
        ends.append(data.qvel.copy())
    moved, expected = ends[1] - ends[0], (b @ change)[trial.model.nv :]
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(moved, expected, atol=0.03 * np.abs(expected).max())


def test_the_robot_is_unstable_without_the_regulator_and_stable_with_it(trial, board_lqr):
    _, b = board_lqr.linearised(trial.model, trial.pose, trial.hold)
    assert len(board_lqr.doubling_steps(trial.a)) == 7
    assert board_lqr.doubling_steps(trial.a)[0] == pytest.approx(3.8, abs=0.2)
    assert board_lqr.doubling_steps(trial.a - b @ trial.gain) == []


def test_the_robot_stands_near_the_balance_and_falls_with_noisy_actions(trial):
    trial.begin(near=0.003)
    assert trial.stood(200).tolist() == [200] * 4
    trial.begin(near=0.003)
    assert (trial.stood(200, noise=1.0) < 100).all()


def test_the_robot_falls_without_the_gain(trial, monkeypatch):
    monkeypatch.setattr(trial, "gain", np.zeros_like(trial.gain))
    trial.begin(near=0.003)
    assert (trial.stood(200) < 150).all()


def test_a_spread_scales_the_start_of_the_task_around_the_balance(trial):
    trial.begin()
    task, velocities = trial.qpos.copy(), trial.qvel.copy()
    trial.begin(spread=0.05)
    away = trial.qpos - trial.pose
    np.testing.assert_allclose(away[:, trial.q_ids], task[:, trial.q_ids] / 4)
    assert np.array_equal(trial.qvel, velocities)
    assert not np.delete(away, trial.q_ids, axis=1).any()


def test_the_tables_are_printed_and_written(tmp_path, board_lqr, capsys, monkeypatch):
    for name, values in {"NEAR": (0.003,), "NOISES": (0.0, 1.0), "SPREADS": (0.02,)}.items():
        monkeypatch.setattr(board_lqr, name, values)
    stood = board_lqr.Trial.stood
    monkeypatch.setattr(board_lqr.Trial, "stood", lambda self, limit, noise: stood(self, min(limit, 60), noise))
    board_lqr.main(["--episodes", "2", "--threads", "1", "--out", str(tmp_path / "found.md")])
    head, text = (tmp_path / "found.md").read_text().split("\n\n", 1)
    assert "board_lqr.py --episodes 2 --seed 1" in head
    assert capsys.readouterr().out.strip() == text.strip()
    assert "| in balance, noise 0.003 | 60 ± 0 | 60 | 0 % |" in text
    assert "| the task's own |" in text


def test_impossible_numbers_are_refused(board_lqr):
    with pytest.raises(SystemExit, match="episodes and threads must be at least 1; got 0 and 2"):
        board_lqr.main(["--episodes", "0", "--threads", "2"])


def test_without_scipy_the_error_names_the_package_to_install():
    code = f"import runpy, sys; sys.modules['scipy'] = None; runpy.run_path({str(FILE)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "board_lqr: scipy is missing; pip install -c constraints.txt -e '.[rl]'\n"
