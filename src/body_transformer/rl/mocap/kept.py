"""Rollouts that are kept in a file, so that other trainings and resumed ones on this machine load the same rollouts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ...body.layout import Layout
from ...files import atomic_write, try_lock
from ...imitation.episodes import EpisodeInfo
from ...imitation.on_device import OnDevice
from ...model.tensor_files import write_tensors
from ...schema import json_digest

POLL_S = 0.5


def kept(
    folder: Path, made_with: Mapping[str, Any], layout: Layout, device: str, make: Callable[[], OnDevice]
) -> OnDevice:
    """Load the rollouts that were made with these settings; if there are none, make and keep them.

    Of several processes, one makes the rollouts and the others wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{json_digest(dict(made_with))[:16]}.safetensors"
    with _locked(file.with_suffix(".lock")):
        if file.is_file():
            return _load(file, layout, device)
        episodes = make()
        infos = [[info.clip, info.num_steps] for info in episodes.infos]
        notes = {"infos": json.dumps(infos), "files": json.dumps(dict(episodes.files))}
        tensors = {"obs": episodes.obs, "actions": episodes.actions}
        atomic_write(file, lambda path: write_tensors(path, tensors, notes))
        return episodes


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock inside the context; wait while another process holds it."""
    with path.open("ab") as lock:
        while not try_lock(lock):
            time.sleep(POLL_S)
        yield


def _load(file: Path, layout: Layout, device: str) -> OnDevice:
    try:
        with safe_open(file, "pt", device) as stored:
            notes = stored.metadata()
            infos = [EpisodeInfo(num_steps, clip) for clip, num_steps in json.loads(notes["infos"])]
            episodes = OnDevice(layout, infos, stored.get_tensor("obs"), stored.get_tensor("actions"))
            episodes.files = json.loads(notes["files"])
    except Exception as error:  # safetensors has its own kinds of errors
        raise ValueError(
            f"{file}: not a file of rollouts, or damaged: remove it, and it is made again ({error})"
        ) from None
    return episodes
