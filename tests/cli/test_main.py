"""`bot` itself: help, version, unknown verbs, errors as one sentence."""

import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

from body_transformer import __version__
from body_transformer.cli.main import VERBS, main
from body_transformer.errors import install

VERBS_FILE = sys.modules[main.__module__].__file__


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "body_transformer.cli.main", *args], capture_output=True, text=True)


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in VERBS)


@pytest.mark.alone
def test_help_takes_less_than_a_second() -> None:
    def once() -> float:
        start = time.perf_counter()
        assert run("--help").returncode == 0
        return time.perf_counter() - start

    assert min(once() for _ in range(3)) < 1.0


def test_without_a_verb_the_usage_is_shown_and_the_status_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: bot" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bot {__version__}\n"


def test_an_unknown_verb_is_an_error_that_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspct"]) == 2
    have = ", ".join(repr(verb) for verb in VERBS)
    assert capsys.readouterr().err == f"bot: unknown command 'inspct'; did you mean 'inspect'? have: {have}\n"


def test_a_bad_flag_is_refused() -> None:
    result = run("inspect", "humanoid", "--rooot", "torso")
    assert result.returncode == 2
    assert "--rooot" in result.stderr
    assert result.stdout == ""


def test_an_interrupt_prints_stopped_and_gives_the_usual_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(args: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("body_transformer.cli.list.main", interrupted)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "bot list: stopped\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_signal_gives_the_usual_status_in_every_command_but_deploy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals, status: int
) -> None:
    before = signal.getsignal(number)
    for verb in sorted(VERBS.keys() - {"deploy"}):
        monkeypatch.setattr(f"body_transformer.cli.{verb}.main", lambda args: os.kill(os.getpid(), number))
        assert main([verb]) == status
        assert capsys.readouterr().err == f"bot {verb}: stopped\n"
    assert signal.getsignal(number) is before


def test_a_package_that_is_not_installed_is_named_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(args: list[str]) -> None:
        raise ModuleNotFoundError("No module named 'tyro'", name="tyro.conf")

    monkeypatch.setattr("body_transformer.cli.list.main", lacking)
    assert main(["list"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("bot list: the Python package 'tyro.conf' is not installed")
    assert said.endswith(f"install the whole package: {install()}\n")
    assert said.count("\n") == 1


def test_a_missing_module_of_this_package_is_raised_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(args: list[str]) -> None:
        raise ModuleNotFoundError("No module named 'body_transformer.x'", name="body_transformer.x")

    monkeypatch.setattr("body_transformer.cli.list.main", mistaken)
    with pytest.raises(ModuleNotFoundError):
        main(["list"])


@pytest.mark.filterwarnings("always")
def test_warnings_of_this_package_are_sentences_and_those_of_other_packages_stay_unchanged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warning(args: list[str]) -> None:
        warnings.warn_explicit("one of two is broken", UserWarning, VERBS_FILE, 7)
        warnings.warn_explicit("old", DeprecationWarning, "torch/nn.py", 7)

    monkeypatch.setattr("body_transformer.cli.list.main", warning)
    before = warnings.showwarning
    with pytest.warns(DeprecationWarning, match="old") as others:
        assert main(["list"]) == 0
    assert capsys.readouterr().err == "bot list: one of two is broken\n"
    assert len(others) == 1
    assert warnings.showwarning is before


@pytest.mark.parametrize("command", ["--help", "list", "inspect mocapact", "inspect mocapact --json"])
def test_a_closed_pipe_is_not_an_error(command: str) -> None:
    shell = f"set -o pipefail; {sys.executable} -m body_transformer.cli.main {command} | true"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("experiment", ["demo", "humanoid-mod"])
def test_help_and_flags_use_the_same_word_for_none(capsys: pytest.CaptureFixture[str], experiment: str) -> None:
    with pytest.raises(SystemExit):
        main(["train", experiment, "--help"])
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--rl.eval-every {None}|INT" in words or "--imitation.eval-every {None}|INT" in words
    assert "None = at the end only" in words
    assert "; none" not in words
