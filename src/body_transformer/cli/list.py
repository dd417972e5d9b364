"""`bot list`: list experiments, variants, robots and trained policies."""

from dataclasses import dataclass

import tyro
from rich.table import Table

from .. import pretrained, robots
from ..experiment import experiment_names, load_experiment
from ..model.variants import VARIANTS
from ..rl.registry import MJLAB
from .output import console, print_json
from .run_options import Flag


@dataclass
class List:
    """List the experiments, variants, robots and trained policies."""

    json: Flag = False
    """Print one JSON object instead of tables."""


def main(args: list[str]) -> None:
    """Print the names."""
    options = tyro.cli(List, prog="bot list", args=args)
    titles = {name: load_experiment(name).title for name in experiment_names()}
    if options.json:
        print_json(
            {
                "experiments": titles,
                "variants": list(VARIANTS),
                "robots": robots.names(),
                "pretrained": pretrained.names(),
            }
        )
        return
    table = Table("experiment", "description", box=None, pad_edge=False)
    for name, title in titles.items():
        table.add_row(name, title)
    out = console()
    out.print(table)
    out.print(
        f"\nbot train also takes {MJLAB}NAME, a task of mjlab (bot train {MJLAB} lists them), YAML files, "
        "and any robot with demonstrations (bot train --robot FILE --data PATH)."
    )
    out.print(f"\nvariants:   {', '.join(VARIANTS)}")
    out.print(f"robots:     {', '.join(robots.names())}")
    out.print(f"pretrained: {', '.join(pretrained.names())} (bot eval {pretrained.PREFIX}NAME)")
