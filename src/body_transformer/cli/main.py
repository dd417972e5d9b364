"""`bot VERB …`: find the module of a verb and run it."""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import install, unknown
from .output import complain, to_nowhere

PACKAGE = Path(__file__).parents[1]
VERBS = {
    "bench": "measure speed, and compare it with other implementations and the hardware's limits",
    "collect": "record demonstrations of a policy as a Minari dataset",
    "demo": "train, evaluate and compare policies on the built-in task, on a CPU",
    "deploy": "run an exported policy on a robot, in real time",
    "eval": "evaluate a trained policy",
    "export": "export a policy as ONNX, with the contract that a robot needs",
    "inspect": "show the body graph, layout and parameter count of a robot file or an experiment",
    "list": "list experiments, variants, robots and trained policies",
    "new": "write an experiment for a robot of your own, to be edited",
    "report": "write one HTML page about runs or deployments",
    "reproduce": "train the missing runs of a table or figure of the paper, then draw it",
    "train": "train a policy from demonstrations or by reinforcement learning",
}


def main(args: list[str] | None = None) -> int:
    """Run a command and return its exit status.

    It is 0 for success, 1 for an error, 2 for a wrong command line, 130 after Ctrl-C and 143 after SIGTERM.
    """
    if sys.stdout is None:  # the shell closed it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, for as long as the program runs
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    status = 0
    try:
        status = _run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has ended
        to_nowhere(sys.stdout)
    except OSError as error:
        to_nowhere(sys.stdout)
        complain(f"bot: standard output cannot be written: {error}")
        return status or 1
    return status


def _run(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        return 0 if args else 2
    if args[0] == "--version":
        print(f"bot {__version__}")
        return 0
    verb, *rest = args
    if verb not in VERBS:
        print(f"bot: {unknown('command', verb, VERBS)}", file=sys.stderr)
        return 2
    try:
        with _plain_warnings(verb), _stop_signals(verb):
            import_module(f".{verb}", __package__).main(rest)
    except BrokenPipeError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == PACKAGE.name:  # a mistake in this package
            raise
        complain(f"bot {verb}: {_missing(error.name)}")
        return 1
    except (ValueError, OSError) as error:
        complain(f"bot {verb}: {error}")
        return 1
    except KeyboardInterrupt as stop:
        complain(f"bot {verb}: {stop}" if stop.args else f"bot {verb}: stopped")
        return 128 + int(getattr(stop, "number", signal.SIGINT))
    return 0


def _stop_signals(verb: str) -> AbstractContextManager[None]:
    """Return the context in which Ctrl-C and SIGTERM end a command; on a robot they are the emergency stop instead."""
    if verb == "deploy":
        return nullcontext()
    from ..training.stopping import stopped_by_signals

    return stopped_by_signals()


def _missing(package: str) -> str:
    return (
        f"the Python package {package!r} is not installed (a robot's computer has only the packages of `bot deploy`); "
        f"use another computer, or install the whole package: {install()}"
    )


@contextmanager
def _plain_warnings(verb: str) -> Iterator[None]:
    """Print this package's warnings like its errors, on standard error; leave those of other packages as they are."""
    with warnings.catch_warnings():
        as_usual = warnings.showwarning

        def show(*warning: Any, **options: Any) -> None:
            message, _, file, *_ = warning
            if Path(file).is_relative_to(PACKAGE):
                complain(f"bot {verb}: {message}")
            else:
                as_usual(*warning, **options)

        warnings.showwarning = show
        yield


def usage() -> str:
    """Return the help text."""
    rows = "\n".join(f"  {verb:<10}{text}" for verb, text in VERBS.items())
    title = "Robot policies whose attention follows the body"
    return f"usage: bot VERB ... (bot VERB --help for details)\n\n{title}\n\n{rows}"


if __name__ == "__main__":
    sys.exit(main())
