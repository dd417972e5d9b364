"""Log the metrics of a run: to metrics.jsonl, to TensorBoard if it is installed, to Weights & Biases if requested."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .run import METRICS


class MetricsLog:
    """Log of a run; each value is a number, or a mapping with a `mean`."""

    def __init__(
        self, folder: Path, first_step: int = 0, wandb_project: str | None = None, description: Mapping[str, Any] = {}
    ) -> None:
        self._lines = (folder / METRICS).open("a", encoding="utf-8")
        self._tensorboard = _tensorboard(folder, first_step)
        self._wandb = _wandb(folder, wandb_project, description)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Write one line."""
        self._lines.write(json.dumps({"step": step, **values}) + "\n")
        self._lines.flush()
        numbers = {name: value["mean"] if isinstance(value, Mapping) else value for name, value in values.items()}
        if self._tensorboard is not None:
            for name, number in numbers.items():
                self._tensorboard.add_scalar(name, number, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def close(self) -> None:
        """Close all outputs."""
        self._lines.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()


def _tensorboard(folder: Path, first_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=first_step or None)


def _wandb(folder: Path, project: str | None, description: Mapping[str, Any]) -> Any:
    if project is None:
        return None
    try:
        import wandb
    except ImportError:
        raise ValueError("--wandb needs Weights & Biases, which is not installed: pip install wandb") from None
    name = "/".join(folder.parts[-3:])
    known = f"{folder.resolve()} {description.get('date')}"  # the same for a resumed run, different for any other
    return wandb.init(
        project=project,
        name=name,
        dir=str(folder),
        config=dict(description),
        resume="allow",
        id=hashlib.sha256(known.encode()).hexdigest()[:16],
    )
