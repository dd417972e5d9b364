"""`bot list`."""

import json

import pytest

from body_transformer.cli.main import main

PAPER = [
    "a1-walk",
    "adroit-door",
    "adroit-hammer",
    "adroit-relocate",
    "humanoid-board",
    "humanoid-hill",
    "humanoid-mod",
    "mocapact",
]


def test_all_of_the_papers_experiments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(PAPER) <= set(listed["experiments"])
    assert {"mlp", "transformer", "bot-hard", "bot-mix", "bot-soft", "bot-hard-random", "bot-mix-random"} == set(
        listed["variants"]
    )
    assert {"humanoid", "a1"} <= set(listed["robots"])
    assert "humanoid-mod" in listed["pretrained"]


def test_the_table_has_a_row_for_each_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in PAPER)
    assert any(line.startswith("pretrained: ") and "humanoid-mod" in line for line in lines)
