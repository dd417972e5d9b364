"""`bot inspect ROBOT|EXPERIMENT`: show the body graph, the node of each entry, and the size of a policy."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from .. import robots
from ..body.graph import BodyGraph, Fixed
from ..body.layout import Layout
from ..body.table import allocation_table
from ..errors import listing
from ..experiment import SUFFIXES, Experiment, experiment_names, load_experiment
from ..model.config import PolicyConfig
from ..model.variants import variant_name
from ..schema import plain
from .output import console, print_json
from .run_options import Flag

OF_GRAPH = (
    "nodes",
    "root",
    "edges",
    "extra_edges",
    "joints",
    "actuators",
    "num_nodes",
    "num_ones",
    "sparsity",
    "diameter",
)
OF_SOME_GRAPHS = ("other_roots", "mimics")
OF_LAYOUT = ("obs_dim", "used_obs_dim", "action_dim")
"""Attributes of the body graph, of a graph that has them, and of the layout that `--json` prints."""


@dataclass
class Inspect:
    """Show the body graph of a robot file or an experiment, the node of each entry, and a variant's parameter count."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ROBOT|EXPERIMENT")]
    """An MJCF or URDF file, a shipped robot (humanoid, a1, …), an experiment (humanoid-mod, …) or its YAML file."""
    root: Annotated[tuple[str, ...], tyro.conf.arg(metavar="BODY ...")] = ()
    """The robot's root body; needed if the file holds several trees. Several roots, of two arms, become neighbours;
    `world` puts the whole file below a node of its own."""
    fixed: Annotated[Fixed, tyro.conf.arg(metavar="keep|merge")] = "keep"
    """Whether a body without a joint keeps its own node or merges into its parent."""
    allow_outside: Flag = False
    """Allow the robot's file to name files outside its folder: included ones, meshes and the like."""
    equality_edges: Flag = False
    """Use the file's connect and weld constraints as edges, as closed-chain legs need."""
    variant: Annotated[str | None, tyro.conf.arg(metavar="VARIANT")] = None
    """Architecture whose parameters are counted."""
    json: Flag = False
    """Print one JSON object instead of a table."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for pictures of the body as a tree and of the mask."""
    format: Literal["png", "pdf", "svg"] = "png"
    """Format of the pictures."""


@dataclass(frozen=True)
class Subject:
    """A robot with the layout of its experiment, or with a layout that fits most robots."""

    graph: BodyGraph
    layout: Layout | None
    config: PolicyConfig
    experiment: Experiment | None

    def count_parameters(self) -> dict[str, int]:
        """Return the parameters of the policy and, if the experiment trains one, of the critic."""
        from ..model.policy import Critic, Policy

        if self.layout is None:
            raise ValueError(
                "this robot has neither actuators nor hinge or slide joints, so there is no policy to count"
            )
        counts = {"policy": Policy(self.layout, self.config).num_parameters}
        if self.experiment is not None and self.experiment.critic:
            counts["critic"] = Critic(self.experiment.critic_layout(), self.config).num_parameters
        return counts


def main(args: list[str]) -> None:
    """Print the graph and sizes of a robot or an experiment, and draw the pictures."""
    options = tyro.cli(Inspect, prog="bot inspect", args=args)
    if options.variant is not None:
        variant_name(options.variant)
    subject = find_subject(options)
    if options.json:
        print_json(as_json(subject, count=subject.experiment is not None or options.variant is not None))
    else:
        show(subject)
    if options.out:
        for picture in draw(subject, options.out, options.format):
            print(f"wrote {picture}", file=sys.stderr if options.json else sys.stdout)


def find_subject(options: Inspect) -> Subject:
    """Read the robot or experiment."""
    if options.what in experiment_names() or options.what.endswith(SUFFIXES):
        if options.root or options.fixed != "keep" or options.equality_edges or options.allow_outside:
            raise ValueError(
                f"{options.what!r} is an experiment and sets its own root, fixed, edges and allow_outside; leave the "
                "flags out"
            )
        experiment = load_experiment(options.what)
        layout = experiment.layout()
        return Subject(layout.graph, layout, experiment.policy_config(options.variant), experiment)
    graph = BodyGraph.from_file(
        find_robot(options.what),
        options.root or None,
        options.fixed,
        equality_edges=options.equality_edges,
        allow_outside=options.allow_outside,
    )
    controllable = graph.actuators or graph.independent_joints
    layout_or_none = Layout.proprioceptive(graph) if controllable else None
    config = PolicyConfig(variant=variant_name(options.variant or PolicyConfig.variant))
    return Subject(graph, layout_or_none, config, None)


def find_robot(what: str) -> Path:
    """Return the file of a shipped robot or of the user."""
    if what in robots.names():
        return robots.path(what)
    if not Path(what).exists():
        known = listing([*experiment_names(), *robots.names()])
        raise FileNotFoundError(
            f"no robot file at {what!r}, and no experiment or shipped robot of that name; have: {known}"
        )
    return Path(what)


def as_json(subject: Subject, count: bool) -> dict[str, Any]:
    """Return the graph and, with `count`, the sizes of layout and policy."""
    content = {name: plain(getattr(subject.graph, name)) for name in OF_GRAPH}
    content |= {name: plain(value) for name in OF_SOME_GRAPHS if (value := getattr(subject.graph, name))}
    if count:
        parameters = sum(subject.count_parameters().values())
        content |= {name: getattr(subject.layout, name) for name in OF_LAYOUT}
        content |= {"parameters": parameters, "variant": subject.config.variant}
    return content


def show(subject: Subject) -> None:
    """Print the table of nodes and their entries, and the sizes."""
    graph, layout = subject.graph, subject.layout
    out = console()
    out.print(allocation_table(graph, layout))
    loops = f", {len(graph.extra_edges)} extra edges" if graph.extra_edges else ""
    followers = f", {len(graph.mimics)} of which follow another" if graph.mimics else ""
    out.print(
        f"\n{graph.num_nodes} nodes, {graph.num_ones} ones in the mask, sparsity {graph.sparsity:.4f}, "
        f"diameter {graph.diameter}{loops}, {len(graph.joints)} joints{followers}, {len(graph.actuators)} actuators"
    )
    if graph.other_roots:
        out.print(f"{len(graph.roots)} trees, whose roots are neighbours of each other: {listing(graph.roots)}")
    if graph.is_fixed_base and not subject.experiment:
        out.print("fixed base: the file has no free joint, so there are no gravity and velocity terms of the base")
    if layout is None:
        out.print("nothing to control: neither actuators nor hinge or slide joints")
    else:
        counts = subject.count_parameters()
        parts = f" ({', '.join(f'{part} {count:,}' for part, count in counts.items())})" if len(counts) > 1 else ""
        note = "" if subject.experiment else "; a default layout: the file does not describe observations"
        out.print(
            f"{layout.obs_dim} observation entries, {layout.used_obs_dim} used; {layout.action_dim} actions{note}"
        )
        out.print(f"{subject.config.variant}: {sum(counts.values()):,} parameters{parts}")
        is_masked = subject.config.architecture.masked_layers == "all"
        if is_masked and (layers := subject.config.num_layers) < graph.diameter:
            out.print(f"{layers} masked layers: nodes more than {layers} hops apart do not see each other")


def draw(subject: Subject, folder: Path, suffix: str) -> list[Path]:
    """Draw the two pictures and return their paths."""
    from ..body.draw import draw_body, draw_mask
    from ..model.mask import MASKS

    config = subject.config
    is_random = config.architecture.mask == "random"
    title = f"{config.variant}: random mask, seed {config.mask_seed}" if is_random else None
    body, mask = folder / f"body.{suffix}", folder / f"mask.{suffix}"
    draw_body(subject.graph, body)
    draw_mask(subject.graph, mask, MASKS[config.architecture.mask](subject.graph, config.mask_seed), title)
    return [body, mask]
