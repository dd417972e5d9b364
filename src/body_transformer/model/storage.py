"""A policy on disk: policy.safetensors (weights) and policy.json (configuration, layout, graph, versions).

Each file carries a digest of the other, so that a truncated, edited or swapped one is noticed. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .. import __version__
from ..body.layout import Layout
from ..errors import listing
from .config import PolicyConfig
from .policy import Policy

WEIGHTS, DESCRIPTION = "policy.safetensors", "policy.json"
FORMAT, FORMAT_VERSION = "body_transformer.policy", 1


def save_policy(policy: Policy, path: str | os.PathLike[str]) -> None:
    """Writes both files aside, then moves them into place: a reader sees the old policy or the new one.

    Into a folder that exists already, the two files are moved one after the other; a crash between the moves is
    noticed by `load_policy`.
    """
    path = Path(path).resolve()  # a symlink stays one; what it points to is written
    if path.exists() and not path.is_dir():
        raise ValueError(f"cannot save a policy to {str(path)!r}: it is a file, a folder is needed")
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    # Inside a folder that exists: its parent may be another file system, or not ours to write.
    aside = (path.parent if is_new else path) / f".{path.name}.{uuid.uuid4().hex[:8]}"
    aside.mkdir()
    try:
        _write(policy, aside)
        if is_new:
            os.replace(aside, path)
        else:
            for name in (WEIGHTS, DESCRIPTION):
                os.replace(aside / name, path / name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Rebuilds the policy and fills in its weights; a file that is not what `save_policy` wrote is refused."""
    path = Path(path)
    for name in (DESCRIPTION, WEIGHTS):
        if not (path / name).is_file():
            raise FileNotFoundError(f"no policy in {str(path)!r}: {name} is not there")
    content = _read_description(path / DESCRIPTION)
    weights = _read_weights(path / WEIGHTS, content)
    try:
        layout = Layout.from_dict(content["policy"]["layout"])
        config = PolicyConfig.from_dict(content["policy"]["config"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{str(path / DESCRIPTION)!r} is not a policy's description: {error!r}") from None
    with torch.random.fork_rng(devices=[]):  # loading draws weights only to overwrite them
        policy = Policy(layout, config)
    _check_tensors(path / WEIGHTS, weights, policy.state_dict())
    policy.load_state_dict(weights, assign=True)  # each in the precision it was saved in
    return policy


def _write(policy: Policy, folder: Path) -> None:
    description = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "package_version": __version__,
        "policy": {"config": policy.config.to_dict(), "layout": policy.layout.to_dict()},
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.state_dict().items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt", "description_sha256": _digest_of(description)})
    _sort_metadata(folder / WEIGHTS)
    content = description | {"weights_sha256": _digest_of_file(folder / WEIGHTS)}
    (folder / DESCRIPTION).write_text(json.dumps(content, indent=1) + "\n")
    os.chmod(folder / WEIGHTS, (folder / DESCRIPTION).stat().st_mode)  # safetensors lets nobody else read
    for file in (folder / WEIGHTS, folder / DESCRIPTION, folder):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _sort_metadata(file: Path) -> None:
    """safetensors writes its metadata in an order that chance decides; the same policy should be the same bytes."""
    with file.open("r+b") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        stream.seek(8)
        stream.write(json.dumps(header, separators=(",", ":")).encode().ljust(size))


def _read_description(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{str(file)!r} is not whole JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{str(file)!r} does not describe a policy: its format must be {FORMAT!r}")
    if content.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{str(file)!r} has format version {content.get('format_version')!r}, written by body_transformer "
            f"{content.get('package_version')!r}; this is {__version__}, which reads version {FORMAT_VERSION}"
        )
    return content


def _read_weights(file: Path, content: Mapping[str, Any]) -> dict[str, Tensor]:
    if _digest_of_file(file) != content.get("weights_sha256"):
        raise ValueError(
            f"{str(file)!r} is not the file that {DESCRIPTION} was written with: truncated, changed or swapped"
        )
    try:
        with safe_open(file, framework="pt") as tensors:
            described = {key: value for key, value in content.items() if key != "weights_sha256"}
            if (tensors.metadata() or {}).get("description_sha256") != _digest_of(described):
                raise ValueError(
                    f"{DESCRIPTION} is not the one that {str(file)!r} was written with: changed or swapped"
                )
            return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118, not a dict
    except SafetensorError as error:
        raise ValueError(f"{str(file)!r} is not a whole safetensors file: {error}") from None


def _check_tensors(file: Path, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    if missing := expected.keys() - found.keys():
        raise ValueError(f"{str(file)!r} lacks {listing(sorted(missing))}")
    if foreign := found.keys() - expected.keys():
        raise ValueError(f"{str(file)!r} has tensors that this policy does not: {listing(sorted(foreign))}")
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            raise ValueError(
                f"{str(file)!r}: {name} is {list(found[name].shape)}; this policy's is {list(tensor.shape)}"
            )


def _digest_of(described: Any) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _digest_of_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
