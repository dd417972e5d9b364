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


def test_everything_that_ships_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(PAPER) <= set(listed["experiments"])
    variants = {"mlp", "transformer", "bot-hard", "bot-mix", "bot-soft", "bot-hard-random", "bot-mix-random"}
    assert set(listed["variants"]) == variants
    assert {"humanoid", "a1"} <= set(listed["robots"])
    assert "humanoid-mod" in listed["pretrained"]
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in PAPER)
    assert any(line.startswith("pretrained: ") and "humanoid-mod" in line for line in lines)
