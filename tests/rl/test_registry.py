"""Tasks by name, and how mjlab finds ours."""

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import body_transformer
from body_transformer.rl import registry

OURS = ["humanoid-mod", "humanoid-hill", "humanoid-board"]


def python(program: str, *folders: Path) -> str:
    """Return the output of a program in a fresh interpreter, with our package and these folders on its path."""
    path = os.pathsep.join(map(str, [Path(body_transformer.__file__).parents[1], *folders]))
    environment = os.environ | {"PYTHONPATH": path, "MUJOCO_GL": "disabled"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Failed to load task package" not in done.stderr, done.stderr
    return done.stdout


def test_the_registry_can_be_imported_without_mjlab():
    heavy = python("import sys; from body_transformer.rl import registry; print(*sys.modules)").split()
    assert {"mjlab", "warp", "torch", "mujoco"}.isdisjoint(heavy)


def test_a_missing_mjlab_is_an_error_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mjlab", None)
    for call in (lambda: registry.make_env_cfg("humanoid-mod", 1, 0), registry.names):
        with pytest.raises(
            ValueError, match=r"needs mjlab; install it with: pip install -c constraints.txt -e '\.\[rl\]'"
        ):
            call()


class TestWithMjlab:
    @pytest.fixture(autouse=True)
    def _mjlab(self):
        pytest.importorskip("mjlab")

    def test_our_tasks_come_first(self):
        names = registry.names()
        assert names[:3] == OURS
        assert "mjlab:Mjlab-Velocity-Flat-Unitree-Go1" in names
        assert len(names) == len(set(names))

    @pytest.mark.parametrize(
        ("name", "entity"),
        [*((name, "robot") for name in OURS), ("mjlab:Mjlab-Cartpole-Balance", "cartpole")],
    )
    def test_a_configuration_has_the_given_number_of_robots_and_seed(self, name, entity):
        cfg = registry.make_env_cfg(name, num_envs=5, seed=7)
        assert entity in cfg.scene.entities
        assert (cfg.scene.num_envs, cfg.seed) == (5, 7)

    @pytest.mark.parametrize("name", ["Velocity-Flat-Unitree-Go1", "Velocity-Rough-Unitree-G1", "Cartpole-Balance"])
    def test_an_mjlab_task_is_evaluated_without_noise_and_pushes_and_its_episodes_end_as_in_training(self, name):
        training, playing = (registry.make_env_cfg(f"mjlab:Mjlab-{name}", 3, 2, play=play) for play in (False, True))
        assert training.observations["actor"].enable_corruption
        assert not playing.observations["actor"].enable_corruption
        assert "push_robot" not in playing.events
        assert playing.episode_length_s == training.episode_length_s <= 50
        assert list(playing.terminations) == list(training.terminations)
        assert (playing.scene.num_envs, playing.seed) == (3, 2)

    def test_one_of_our_tasks_is_evaluated_as_it_is_trained(self):
        training, playing = (registry.make_env_cfg("humanoid-mod", 3, 2, play=play) for play in (False, True))
        assert playing.observations.keys() == training.observations.keys()
        assert playing.episode_length_s == training.episode_length_s

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("humanoid-mud", "did you mean 'humanoid-mod'"),
            ("mjlab:Mjlab-Cartpole-Balanc", "did you mean 'mjlab:Mjlab-Cartpole-Balance'"),
            ("Mjlab-Cartpole-Balance", "did you mean 'mjlab:Mjlab-Cartpole-Balance'"),
            ("mjlab:humanoid-mod", "did you mean 'humanoid-mod'"),
        ],
    )
    def test_an_unknown_task_lists_what_exists(self, name, hint):
        with pytest.raises(ValueError, match=f"unknown task '{name}'; {hint}.*have: 'humanoid-mod', 'humanoid-hill'"):
            registry.make_env_cfg(name, 1, 0)

    def test_zero_robots_and_seeds_out_of_range_are_refused(self):
        with pytest.raises(ValueError, match="num_envs must be 1 or more; got 0"):
            registry.make_env_cfg("humanoid-mod", 0, 0)
        for seed in (-1, 2**32):
            with pytest.raises(ValueError, match=rf"a seed must be from 0 to 2\*\*32 - 1; got {seed}"):
                registry.make_env_cfg("humanoid-mod", 1, seed)

    def test_making_an_environment_prints_nothing(self, capfd):
        registry.make_env("mjlab:Mjlab-Cartpole-Balance", 1, 0, "cpu").reset()
        assert capfd.readouterr().out == ""

    @pytest.mark.parametrize("first", ["mjlab", "body_transformer.rl.humanoid.hill"])
    def test_mjlab_finds_our_tasks_in_either_order_of_imports(self, first, tmp_path):
        pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
        (module,) = pyproject["project"]["entry-points"]["mjlab.tasks"].values()
        package = tmp_path / "plugin-1.0.dist-info"  # what pip makes of the entry points
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(f"[mjlab.tasks]\nours = {module}\n")
        show = "from mjlab.tasks.registry import list_tasks; print(*list_tasks())"
        assert set(OURS) <= set(python(f"import {first}; {show}", tmp_path).split())

    def test_mjlabs_runner_trains_on_the_scaled_reward(self):
        import_module("body_transformer.rl.mjlab_plugin")
        from mjlab.tasks.registry import load_env_cfg, load_rl_cfg

        cfg = load_env_cfg("humanoid-mod")
        assert cfg.rewards["alive"].weight == pytest.approx(0.02)
        assert cfg.rewards["death"].weight == pytest.approx(-0.01)
        assert load_rl_cfg("humanoid-mod").num_steps_per_env == 32
        assert registry.names()[:3] == OURS

    @pytest.mark.parametrize(("name", "group"), [("humanoid-mod", "actor"), ("a1-walk", "critic")])
    def test_in_mjlabs_runner_a_critic_has_its_own_observations_if_the_task_does(self, name, group):
        import_module("body_transformer.rl.mjlab_plugin")
        from mjlab.tasks.registry import load_env_cfg, load_rl_cfg

        assert load_rl_cfg(name).obs_groups == {"actor": ("actor",), "critic": (group,)}
        assert group in load_env_cfg(name).observations

    @pytest.mark.parametrize("name", ["humanoid-mod", "a1-walk"])
    def test_mjlabs_commands_turn_our_configurations_into_flags_and_save_them(self, name, tmp_path):
        """Its `train` passes the configuration through tyro, and writes it as YAML."""
        from dataclasses import asdict

        import tyro
        from mjlab.envs import ManagerBasedRlEnvCfg
        from mjlab.utils.os import dump_yaml

        cfg = registry.make_env_cfg(name, 2, 0)
        changed = tyro.cli(ManagerBasedRlEnvCfg, default=cfg, args=["--seed", "5", "--scene.num-envs", "3"])
        assert (changed.seed, changed.scene.num_envs) == (5, 3)
        assert changed.observations == cfg.observations
        dump_yaml(tmp_path / "env.yaml", asdict(changed))
        assert "seed: 5" in (tmp_path / "env.yaml").read_text()
