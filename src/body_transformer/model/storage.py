"""Save and load a Policy: policy.safetensors (weights) and policy.json (configuration, layout, versions).

Each file carries a digest of the other, so a truncated, edited or swapped file is refused. Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..body.layout import Layout
from ..errors import listing
from ..files import digest, new_files, new_folder
from ..policy_folder import DESCRIPTION, WEIGHTS, description_digest, find_policy, new_description, read_description
from ..schema import build, json_text, plain
from .config import PolicyConfig
from .tensor_files import read_tensors, write_tensors
from .trunk import Trunk

T = TypeVar("T", bound=Trunk)
PRECISIONS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Types of weights."""
MAX_SHOWN = 10
"""Number of wrong shapes in an error."""


def save_policy(policy: Trunk, path: str | os.PathLike[str]) -> None:
    """Write both files to a temporary folder, then move them into place.

    A new folder appears with both files. In an existing folder, the files are replaced one by one. After a crash in
    between, `load_policy` refuses the folder.
    """
    path = Path(path).resolve()  # a link is kept; the folder it points to is written
    if path.exists() and not path.is_dir():
        raise ValueError(f"cannot save a policy to {str(path)!r}: it is a file; give a folder")
    with new_files(path) if path.exists() else new_folder(path) as unfinished:
        write_policy(policy, unfinished)


def write_policy(policy: Trunk, folder: Path, more: Mapping[str, Any] | None = None) -> None:
    """Write both files into a temporary folder; `more` is added to policy.json after the digest."""
    description = new_description({"config": plain(policy.config), "layout": policy.layout.to_dict()})
    weights = folder / WEIGHTS
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()}
    write_tensors(weights, tensors, {"format": "pt", "description_sha256": description_digest(description)})
    _sort_metadata(weights)
    content = {**description, "weights_sha256": digest(weights), **(more or {})}
    (folder / DESCRIPTION).write_text(json_text(content) + "\n", encoding="utf-8")
    os.chmod(weights, (folder / DESCRIPTION).stat().st_mode)  # safetensors makes it readable only by its owner


def load_policy(kind: Callable[[Layout, PolicyConfig], T], source: str | os.PathLike[str]) -> T:
    """Rebuild the policy that `find_policy` finds; refuse files that `save_policy` did not write."""
    path = find_policy(source).path
    content = read_description(path)
    weights = _read_weights(path / WEIGHTS, content)
    try:
        layout = Layout.from_dict(content["policy"]["layout"])
        config = build(PolicyConfig, content["policy"]["config"], "policy")
    except (KeyError, TypeError) as error:
        raise ValueError(f"{str(path / DESCRIPTION)!r} does not describe a policy: {error!r}") from None
    except ValueError as error:
        raise ValueError(f"{str(path / DESCRIPTION)!r}: {error}") from None
    with torch.random.fork_rng(devices=[]):  # building a policy draws weights, which are overwritten here
        if wrong := _misfit(lambda: kind(layout, config), config, weights):
            raise ValueError(f"{str(path / WEIGHTS)!r} does not fit {DESCRIPTION}: {wrong}")
        policy = kind(layout, config)
    policy.load_state_dict(weights, assign=True)  # each tensor keeps the precision it was saved in
    return policy


def _misfit(make: Callable[[], Trunk], config: PolicyConfig, weights: Mapping[str, Tensor]) -> str:
    """Describe the weights that are missing, unknown or of another shape or type; empty if they fit.

    No memory is used.
    """
    last = f"encoder.layers.{config.num_layers - 1}."
    if config.architecture.encoder != "mlp" and not any(name.startswith(last) for name in weights):
        return f"num_layers is {config.num_layers}, missing: {last}*"  # building so many layers takes seconds
    try:
        with torch.device("meta"):
            expected = make().state_dict()
    except ValueError as error:
        return str(error)
    lists = {"missing": expected.keys() - weights.keys(), "unknown": weights.keys() - expected.keys()}
    shapes = [
        f"{name} is {list(weights[name].shape)} instead of {list(tensor.shape)}"
        for name, tensor in expected.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    shapes += [f"{name} holds {tensor.dtype}" for name, tensor in weights.items() if tensor.dtype not in PRECISIONS]
    named = [f"{what}: {listing(sorted(names))}" for what, names in lists.items() if names]
    return "; ".join([*named, *shapes[:MAX_SHOWN], *(["…"] if len(shapes) > MAX_SHOWN else [])])


def _sort_metadata(file: Path) -> None:
    """Sort the metadata, which safetensors writes in random order: the same policy gives the same bytes."""
    with file.open("r+b") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        stream.seek(8)
        stream.write(json.dumps(header, separators=(",", ":")).encode().ljust(size))


def _read_weights(file: Path, content: Mapping[str, Any]) -> dict[str, Tensor]:
    if not file.is_file():
        raise FileNotFoundError(f"no policy in {str(file.parent)!r}: {WEIGHTS} is missing")
    if digest(file) != content.get("weights_sha256"):
        raise ValueError(
            f"{str(file)!r} is not the file that {DESCRIPTION} was written with: truncated, changed or swapped"
        )
    tensors, metadata = read_tensors(file)
    if metadata.get("description_sha256") != description_digest(content):
        raise ValueError(f"{DESCRIPTION} is not the one that {str(file)!r} was written with: changed or swapped")
    return tensors
