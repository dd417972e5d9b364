"""A policy as an ONNX file, written by either of PyTorch's exporters."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from ..errors import import_extra
from ..model.policy import Policy
from .rewrite import rewritten
from .session import INPUT, OUTPUT

Exporter = Literal["torchscript", "dynamo"]
_OPTIONS: dict[Exporter, dict[str, Any]] = {
    "torchscript": {"dynamo": False, "dynamic_axes": {INPUT: {0: "batch"}, OUTPUT: {0: "batch"}}},
    "dynamo": {
        "dynamo": True,
        "dynamic_shapes": ({0: torch.export.Dim("batch")},),
        "external_data": False,
        "verbose": False,
    },
}
"""Options of `torch.onnx.export`: the batch size stays open."""


def frozen(policy: Policy) -> Policy:
    """Return a copy for export: on the CPU, in single precision, without gradients."""
    return copy.deepcopy(policy).to("cpu", torch.float32).eval().requires_grad_(False)


def to_onnx(policy: Policy, exporter: Exporter = "torchscript") -> bytes:
    """Return the content of the file: `obs` [batch, O] -> `actions` [batch, A], with weights and normaliser."""
    onnx = import_extra("onnx", "deploy")
    if exporter == "dynamo":
        import_extra("onnxscript", "deploy")
    obs = torch.zeros(3, policy.obs_dim)  # a batch of one would be taken for a constant
    with tempfile.TemporaryDirectory() as folder, _quietly():
        file = Path(folder, "policy.onnx")
        torch.onnx.export(
            rewritten(policy), (obs,), file, input_names=[INPUT], output_names=[OUTPUT], **_OPTIONS[exporter]
        )
        model = onnx.load(file)
    _tidy(model)
    del model.graph.value_info[:]  # intermediate shapes, which a reader infers
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _tidy(message: Any) -> None:
    """Remove the exporters' notes on this machine, such as source lines and paths, from every part of the model."""
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            message.ClearField(field.name)
        elif field.message_type:
            for part in value if isinstance(value, Sequence) else [value]:
                _tidy(part)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silence the exporters' progress messages and deprecation warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
