"""`bot export RUN --out DIR`: a policy as ONNX, with the contract that a robot's computer needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .output import print_json

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass
class Export:
    """Writes policy.onnx (the normaliser inside) and policy.json: joints, observation, gains, limits, check vectors."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The run's folder, or one of its checkpoints; pretrained:NAME is a policy that comes with the package."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Where both files go; it appears when both are whole. An earlier export there is replaced."""
    exporter: Literal["torchscript", "dynamo"] = "torchscript"
    """Which of PyTorch's ONNX exporters; what they write is equally fast, and dynamo takes much longer."""
    json: Flag = False
    """Print one JSON object instead of a sentence."""


def main(args: list[str]) -> None:
    options = tyro.cli(Export, prog="bot export", args=args)
    from ..deploy.contract import MODEL
    from ..deploy.export import export, find_trained

    written = export(find_trained(options.run), options.out, options.exporter)
    contract = written.contract
    num_bytes = (written.folder / MODEL).stat().st_size
    if options.json:
        facts = {
            "path": str(options.out),
            "experiment": contract.experiment,
            "variant": contract.training["variant"],
            "exporter": options.exporter,
            "obs_dim": contract.obs_dim,
            "action_dim": contract.action_dim,
            "control": None if contract.control is None else contract.control.kind,
            "bytes": num_bytes,
            "model_sha256": contract.model_sha256,
            "layout_sha256": contract.layout_sha256,
            "check_vectors": len(contract.checks.obs),
            "largest_deviation": written.deviation,
        }
        print_json(facts)
        return
    about = f"{contract.experiment}, {contract.training['variant']}, {num_bytes / 1e6:.2f} MB"
    agreement = f"differ by at most {written.deviation:.0e} on {len(contract.checks.obs)} check vectors"
    print(f"wrote {options.out} ({about}): ONNX and PyTorch {agreement}")
    if contract.control is None:
        print("no robot is behind this experiment: the contract has no control")
