"""Films and pictures of bodies, embedded in the page."""

from __future__ import annotations

import tempfile
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..body.draw import draw_body, draw_mask
from ..body.graph import BodyGraph
from ..documents import read_json
from ..policy_folder import CHECKPOINTS, DESCRIPTION, saved_steps
from .aggregate import RunGroup
from .load import LoadedRun
from .text import file_size

MAX_FILM_BYTES = 24_000_000
"""Largest film in a page; browsers are slow to open larger pages."""
MASK_USE = {
    "mlp": "an MLP, which has no attention",
    "transformer": "every node attends to every node",
    "bot-hard": "every layer attends along the mask",
    "bot-mix": "every second layer attends along the mask, the others everywhere",
    "bot-soft": "attention everywhere, with a learned bias per distance along the body",
    "bot-hard-random": "every layer attends along a random mask with as many ones (not this one)",
    "bot-mix-random": "every second layer attends along a random mask with as many ones (not this one)",
}
"""How each variant uses the body's mask."""

# -- films -------------------------------------------------------------------------------------------------------------


def films(groups: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """Return one film per group: that of its lowest seed with a film."""
    found = []
    for group in groups:
        filmed = next(((run, film) for run in group.runs if (film := run.film)), None)
        if filmed is not None:
            run, film = filmed
            found.append({"label": group.label, "seed": run.seed, "scores": _scores(run), **_film(film)})
    return found


def _film(path: Path) -> dict[str, str]:
    """Return the film's type and content, or the reason why the page does not show it."""
    num_bytes = path.stat().st_size
    if num_bytes > MAX_FILM_BYTES:
        limit = f"{file_size(num_bytes)}, the limit is {file_size(MAX_FILM_BYTES)}"
        return {"problem": f"The film is too large for this page ({limit}); it is at {path}"}
    content = path.read_bytes()
    mime = film_type(content)
    if mime is None:
        return {"problem": f"{path} is not a complete WebP, GIF or MP4 film."}
    return {"problem": "", "mime": mime, "source": data_uri(mime, content)}


def data_uri(mime: str, content: bytes) -> str:
    """Return a file's content as a data URI."""
    return f"data:{mime};base64,{b64encode(content).decode('ascii')}"


def film_type(content: bytes) -> str | None:
    """Return the media type of a film's content, whatever its name; None for other content or a truncated film."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        is_whole = len(content) >= 8 + int.from_bytes(content[4:8], "little")
        return "image/webp" if is_whole else None
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif" if content.endswith(b";") else None
    if content[4:8] == b"ftyp":
        return "video/mp4" if b"moov" in content else None
    return None


def _scores(run: LoadedRun) -> str:
    """Return the first metric of the evaluation on every split."""
    metrics = list(dict.fromkeys(metric for _, metric in run.results))
    if not metrics:
        return "not evaluated yet"
    values = [f"{value.mean:.3g} {split}" for (split, metric), value in run.results.items() if metric == metrics[0]]
    return f"{metrics[0]} over all its episodes: {', '.join(values)}".replace("_", " ")


# -- bodies ------------------------------------------------------------------------------------------------------------


def bodies(groups: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """Return each different body once, with its mask and the variants that use it."""
    found: dict[Any, tuple[BodyGraph, list[str]]] = {}
    for group in groups:
        graph = next((body for run in group.runs if (body := _read_graph(run)) is not None), None)
        if graph is not None:
            key = (graph.nodes, graph.edges, graph.extra_edges, graph.roots, frozenset(graph.joints.values()))
            found.setdefault(key, (graph, []))[1].append(group.variant)
    return [
        {
            "roots": f"roots are {', '.join(graph.roots)}" if graph.other_roots else f"root is {graph.root}",
            "num_nodes": graph.num_nodes,
            "tree": _picture(draw_body, graph),
            "mask": _picture(draw_mask, graph),
            "uses": [f"{name}: {MASK_USE[name]}" for name in dict.fromkeys(variants) if name in MASK_USE],
        }
        for graph, variants in found.values()
    ]


def _read_graph(run: LoadedRun) -> BodyGraph | None:
    """Return the body in the newest checkpoint with a readable description."""
    for step in reversed(saved_steps(run.folder)):
        try:
            content = read_json(run.folder / CHECKPOINTS / str(step) / DESCRIPTION)
            return BodyGraph.from_dict(content["policy"]["layout"]["graph"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def _picture(draw: Callable[[BodyGraph, Path], None], graph: BodyGraph) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.svg")
        draw(graph, path)
        return data_uri("image/svg+xml", path.read_bytes())
