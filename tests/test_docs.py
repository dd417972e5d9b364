"""The commands, options, files and links that the documentation names exist."""

import re
import shlex
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from body_transformer.cli.bench import BENCHMARKS
from body_transformer.cli.main import VERBS, main

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "body_transformer"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
TRAININGS = ("train demo", "train humanoid-mod", "train --resume", "train --robot")
"""Trainings whose flags together are all flags of `bot train`."""


@cache
def flags(command: str) -> set[str]:
    """Return the flags in the help text of a command."""
    shown = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown), suppress(SystemExit):
        patch.setenv("COLUMNS", "200")
        main([*command.split(), "--help"])
    return set(re.findall(r"(?<![\w-])--[a-z][\w.-]*", shown.getvalue()))


def known_flags(words: list[str]) -> set[str]:
    """Return the flags that a command line may have, given its words after `bot`."""
    if words[0] == "train":
        return set().union(*map(flags, TRAININGS))
    has_own_flags = words[0] == "bench" or words[:2] == ["collect", "mocapact"]
    return flags(" ".join(words[:2] if has_own_flags else words[:1]))


def commands(page: Path) -> list[str]:
    """Return the `bot …` command lines of a page, from its shell blocks and its inline code."""
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    inline = [" ".join(code.split()) for code in re.findall(r"(?<!`)`(bot [^`]*)`(?!`)", text)]
    lines = [line.split(" #")[0].strip() for line in blocks.splitlines()]
    return [line for line in lines + inline if line.startswith("bot ")]


COMMANDS = [pytest.param(line, id=f"{page.stem}: {line}") for page in PAGES for line in commands(page)]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_documented_command_has_the_named_flags(line: str) -> None:
    words = shlex.split(line)[1:]
    assert words[0] in VERBS
    if words[0] == "bench" and len(words) > 1:
        assert set(words[1].split("|")) <= set(BENCHMARKS)
        words[1] = words[1].split("|")[0]
    own, _, passed_on = " ".join(words).partition(" -- ")  # `bot reproduce` passes the second part to `bot train`
    for part, known in ((own, known_flags(words)), (passed_on, known_flags(["train"]))):
        assert {word for word in part.split() if word.startswith("--")} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_documented_setting_is_a_flag(page: Path) -> None:
    named = set(re.findall(r"--(?:rl|imitation|policy)\.[\w.-]*\w", page.read_text(encoding="utf-8")))
    assert named <= known_flags(["train"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_and_source_file_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = {link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("http")}
    assert [link for link in sorted(links) if not (page.parent / link).exists()] == []
    files = set(re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|yaml|cpp))`", text))
    files |= set(re.findall(r"\bbenchmarks/\w+\.py", text))
    assert [name for name in sorted(files) if not ((ROOT / name).exists() or (SOURCE / name).exists())] == []
    modules = {name.removeprefix("body_transformer.") for name in re.findall(r"-m\s+(body_transformer[\w.]+)", text)}
    assert [name for name in sorted(modules) if not (SOURCE / (name.replace(".", "/") + ".py")).exists()] == []


def test_documented_commands_are_found() -> None:
    assert len(COMMANDS) > 60
