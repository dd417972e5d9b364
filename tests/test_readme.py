"""The README's programs and commands run, and its tables hold the experiments' numbers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from body_transformer import Critic, Policy
from body_transformer.cli.main import main
from body_transformer.experiment import experiment_names, load_experiment

README = (Path(__file__).parents[1] / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^bot (.*)$", README, re.MULTILINE)
ROWS = {cells[1].strip(" `"): cells[2:-1] for line in README.splitlines() if len(cells := line.split("|")) == 12}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_runs(program: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 0


def test_there_is_something_to_run() -> None:
    assert len(PROGRAMS) == 2
    assert len(COMMANDS) == 7


@pytest.mark.parametrize("name", experiment_names())
def test_the_table_has_the_experiments_numbers(name: str) -> None:
    experiment = load_experiment(name)
    layout = experiment.layout()
    graph = layout.graph

    def count(variant: str) -> int:
        config = experiment.policy_config(variant)
        critic = Critic(experiment.critic_layout(), config).num_parameters if experiment.critic else 0
        return Policy(layout, config).num_parameters + critic

    counts = [count(variant) for variant in ("transformer", "bot-hard", "bot-mix", "mlp")]
    assert counts[0] == counts[1] == counts[2]
    assert [cell.strip() for cell in ROWS[name]] == [
        str(graph.num_nodes),
        str(graph.num_ones),
        f"{graph.sparsity:.4f}".lstrip("0"),
        str(graph.diameter),
        str(layout.used_obs_dim),
        str(layout.obs_dim),
        str(layout.action_dim),
        f"{counts[0]:,}",
        f"{counts[3]:,}",
    ]
