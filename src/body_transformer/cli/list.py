"""`bot list`: what there is to choose from."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.table import Table

from .. import pretrained, robots
from ..experiment import experiment_names, load_experiment
from ..model.variants import VARIANTS
from ..rl.registry import MJLAB
from .output import console, print_json


@dataclass
class List:
    """The experiments, variants, robots and trained policies there are."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object instead of tables."""


def main(args: list[str]) -> None:
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
    table = Table("experiment", "what it is", box=None, pad_edge=False)
    for name, title in titles.items():
        table.add_row(name, title)
    out = console()
    out.print(table)
    out.print(f"\nbot train takes {MJLAB}NAME, too: a task of mjlab's. bot train {MJLAB} lists them.")
    out.print(f"\nvariants:   {', '.join(VARIANTS)}")
    out.print(f"robots:     {', '.join(robots.names())}")
    out.print(f"pretrained: {', '.join(pretrained.names())} (bot eval {pretrained.PREFIX}NAME)")
