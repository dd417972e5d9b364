"""Log the metrics of a run: to metrics.jsonl, to TensorBoard if it is installed, to Weights & Biases if requested."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from .files import AppendedFile
from .run import METRICS


class MetricsLog:
    """Log of a run; each value is a number, or a mapping with a `mean`."""

    def __init__(
        self, folder: Path, first_step: int = 0, wandb_project: str | None = None, description: Mapping[str, Any] = {}
    ) -> None:
        self._lines = AppendedFile(folder / METRICS)
        self._tensorboard = _tensorboard(folder, first_step)
        self._wandb = _wandb(folder, wandb_project, description)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Write one line."""
        self._lines.append((json.dumps({"step": step, **values}) + "\n").encode())
        numbers = {name: value["mean"] if isinstance(value, Mapping) else value for name, value in values.items()}
        if self._tensorboard is not None:
            self._tensorboard.write(step, numbers)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def close(self) -> None:
        """Close all outputs."""
        self._lines.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()


class TensorBoardFile:
    """An event file of TensorBoard. PyTorch's writer has a thread, whose errors end nothing and print a traceback."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter
        from torch.utils.tensorboard import summary

        scalar: Callable[[str, float], Any] = summary.scalar
        self._protocol, self._records, self._scalar = event_pb2, RecordWriter, scalar
        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
        self._file = AppendedFile(folder / name)
        self._add(file_version="brain.Event:2")
        if first_step:  # later values in earlier files are hidden
            start = event_pb2.SessionLog.START
            self._add(step=first_step, session_log=event_pb2.SessionLog(status=start))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        for name, number in numbers.items():
            self._add(step=step, summary=self._scalar(name, number))

    def _add(self, **fields: Any) -> None:
        event = self._protocol.Event(wall_time=time.time(), **fields)
        record = io.BytesIO()
        self._records(record).write(event.SerializeToString())
        self._file.append(record.getvalue())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


_NUMBERS = count()
"""Numbers of the event files of this process."""


def _tensorboard(folder: Path, first_step: int) -> TensorBoardFile | None:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        return None
    return TensorBoardFile(folder, first_step)


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
