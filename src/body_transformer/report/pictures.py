"""Pictures and films, held by the page itself as data URIs."""

from __future__ import annotations

import json
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..body.draw import draw_body, draw_mask
from ..body.graph import BodyGraph
from . import numbers
from .arms import Arm
from .markup import Markup, join, tag
from .runs import Run

MAX_FILM_BYTES = 24_000_000
"""A larger film would make a page that no browser likes to open."""
MASKED = {
    "mlp": "an MLP, which has no attention",
    "transformer": "every node attends to every node",
    "bot-hard": "every layer attends along the mask",
    "bot-mix": "every second layer attends along the mask, the others everywhere",
    "bot-soft": "attention everywhere, with a learned bias for each distance along the body",
    "bot-hard-random": "every layer attends along a random mask with as many ones (not this one)",
    "bot-mix-random": "every second layer attends along a random mask with as many ones (not this one)",
}
"""How each variant uses the body's mask."""


def data_uri(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{b64encode(content).decode('ascii')}"


# -- the body ----------------------------------------------------------------------------------------------------------


def body_pictures(arms: Sequence[Arm]) -> Markup:
    """Each body that the arms have, with its mask, once; a sentence where no checkpoint tells."""
    bodies: dict[str, tuple[BodyGraph, list[Arm]]] = {}
    for arm in arms:
        graph = next((found for run in arm.runs if (found := read_graph(run)) is not None), None)
        if graph is not None:
            key = json.dumps(graph.to_dict(), sort_keys=True)
            bodies.setdefault(key, (graph, []))[1].append(arm)
    if not bodies:
        return tag("p", "No picture of the body: no run has a checkpoint that can be read.", class_="soft")
    return join(*(_pictures_of(graph, [arm.variant for arm in those]) for graph, those in bodies.values()))


def read_graph(run: Run) -> BodyGraph | None:
    """From the newest checkpoint whose description can be read."""
    parent = run.folder / "checkpoints"
    numbered = [entry for entry in parent.iterdir() if entry.name.isdigit()] if parent.is_dir() else []
    newest_first = sorted(numbered, key=lambda entry: int(entry.name), reverse=True)
    for folder in (parent / "last", *newest_first):
        try:
            content = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
            return BodyGraph.from_dict(content["policy"]["layout"]["graph"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return None


def _pictures_of(graph: BodyGraph, variants: Iterable[str]) -> Markup:
    count = "1 node" if graph.num_nodes == 1 else f"{graph.num_nodes} nodes"
    tree = f"The body: {count}, the root is {graph.root}; a policy makes one token of each."
    uses = [f"{variant}: {MASKED[variant]}" for variant in dict.fromkeys(variants) if variant in MASKED]
    mask = "Its mask: a filled cell lets the row's node attend to the column's. " + "; ".join(uses)
    return tag(
        "div",
        _picture(lambda path: draw_body(graph, path), "the body as a tree", tree),
        _picture(lambda path: draw_mask(graph, path), "the attention mask", mask + ("." if uses else "")),
        class_="pictures",
    )


def _picture(draw: Callable[[Path], None], alt: str, caption: str) -> Markup:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.svg")
        draw(path)
        source = data_uri("image/svg+xml", path.read_bytes())
    return tag("figure", tag("img", src=source, alt=alt), tag("figcaption", caption))


# -- films -------------------------------------------------------------------------------------------------------------


def films(arms: Sequence[Arm], key: Callable[[Arm], Markup]) -> Markup | None:
    """One an arm, side by side: that of the lowest seed which has one. None if there is none."""
    figures = []
    for arm in arms:
        run = next((run for run in arm.runs if run.film is not None), None)
        if run is None or run.film is None:
            continue
        caption = tag("figcaption", key(arm), tag("b", arm.label), f", seed {run.seed}", tag("br"), _scores(run))
        figures.append(tag("figure", film(run.film, f"film of {arm.label}, seed {run.seed}"), caption))
    return tag("div", *figures, class_="films") if figures else None


def film(path: Path, alt: str) -> Markup:
    """The film itself, or a sentence why it is not shown."""
    num_bytes = path.stat().st_size
    if num_bytes > MAX_FILM_BYTES:
        limit = f"{numbers.size(num_bytes)}, the limit is {numbers.size(MAX_FILM_BYTES)}"
        return tag("p", f"The film is too large for this page ({limit}); it is at {path}", class_="soft")
    content = path.read_bytes()
    mime = film_type(content)
    if mime is None:
        return tag("p", f"{path} is no whole WebP, GIF or MP4 film.", class_="soft")
    source = data_uri(mime, content)
    if mime == "video/mp4":
        return tag("video", src=source, aria_label=alt, controls=True, loop=True, muted=True, playsinline=True)
    return tag("img", src=source, alt=alt)


def film_type(content: bytes) -> str | None:
    """By what the file holds, not by its name; None for something else, or a film that was cut off."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        is_whole = len(content) >= 8 + int.from_bytes(content[4:8], "little")
        return "image/webp" if is_whole else None
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif" if content.endswith(b";") else None
    if content[4:8] == b"ftyp":
        return "video/mp4" if b"moov" in content else None
    return None


def _scores(run: Run) -> str:
    """The first metric of its evaluation, on every split."""
    metrics = list(dict.fromkeys(metric for _, metric in run.results))
    if not metrics:
        return "not evaluated yet"
    values = [f"{value.mean:.3g} {split}" for (split, metric), value in run.results.items() if metric == metrics[0]]
    return f"{metrics[0]} over all its episodes: {', '.join(values)}".replace("_", " ")
