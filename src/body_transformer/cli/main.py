"""`bot VERB …`: finds the verb's file and runs it."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TextIO

from .. import __version__
from ..errors import install, unknown
from .output import complain, to_nowhere

PACKAGE = Path(__file__).parents[1]
VERBS = {
    "bench": "how fast it is, beside its peers and the hardware's floor",
    "collect": "demonstrations from a policy, as a Minari data set",
    "demo": "the main job on the built-in task, start to finish, on a plain CPU",
    "deploy": "an exported policy on a robot, in real time",
    "eval": "how good a trained policy is",
    "export": "a policy as ONNX, with the contract that a robot needs",
    "inspect": "the body graph, the allocation and the parameter count of a robot file or an experiment",
    "list": "the experiments, variants, robots and trained policies there are",
    "report": "runs, or what deploy logged, as one HTML page: comparison, curves, body and mask, films; joints, timing",
    "reproduce": "a table or figure of the paper: runs what is missing, then draws it",
    "train": "a policy, from demonstrations or by reinforcement",
}


def main(args: list[str] | None = None) -> int:
    """The exit status: 0 if all went well, 1 if what was asked could not be done, 2 if the question was malformed."""
    if sys.stdout is None:  # closed by the shell
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, for as long as the program runs
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    status = 0
    try:
        status = _run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
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
        with _plain_warnings(verb):
            import_module(f".{verb}", __package__).main(rest)
    except BrokenPipeError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == PACKAGE.name:  # that is our own mistake
            raise
        complain(f"bot {verb}: {_missing(error.name)}")
        return 1
    except (ValueError, OSError) as error:
        complain(f"bot {verb}: {error}")
        return 1
    except KeyboardInterrupt:
        complain(f"bot {verb}: stopped")
        return 130
    return 0


def _missing(package: str) -> str:
    return (
        f"the Python package {package!r} is not installed (a robot's computer has only what `bot deploy` needs); use "
        f"another computer, or install the whole package: {install()}"
    )


@contextmanager
def _plain_warnings(verb: str) -> Iterator[None]:
    """Our own warnings are sentences on standard error, as errors are; those of other packages stay as Python has
    them."""
    with warnings.catch_warnings():
        as_usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if file is None and Path(filename).is_relative_to(PACKAGE):
                complain(f"bot {verb}: {message}")
            else:
                as_usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def usage() -> str:
    rows = "\n".join(f"  {verb:<10}{text}" for verb, text in VERBS.items())
    return (
        f"usage: bot VERB ... (bot VERB --help says more)\n\nRobot policies whose attention follows the body\n\n{rows}"
    )


if __name__ == "__main__":
    sys.exit(main())
