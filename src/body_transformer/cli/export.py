"""`bot export POLICY --out DIR`: a policy as ONNX, with the contract that a robot's computer needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .output import print_json
from .run_options import Flag


@dataclass
class Export:
    """Write policy.onnx (with the normaliser), policy.json with the contract (joints, observation, gains, limits, check
    vectors), and the weights. A robot's computer needs the first two."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="POLICY")]
    """A run folder (its newest checkpoint), a checkpoint, a saved or exported policy, or pretrained:NAME."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the export, which appears when it is complete. An earlier export there is replaced."""
    experiment: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The experiment whose `deploy` section goes into the contract; needed for a policy saved outside a run."""
    exporter: Literal["torchscript", "dynamo"] = "torchscript"
    """PyTorch's ONNX exporter. The files of both are equally fast, and dynamo takes much longer."""
    json: Flag = False
    """Print one JSON object instead of a sentence."""


def main(args: list[str]) -> None:
    options = tyro.cli(Export, prog="bot export", args=args)
    from ..deploy.export import export, find_trained
    from ..experiment import load_experiment
    from ..policy_folder import MODEL

    if options.experiment is not None:
        load_experiment(options.experiment)  # a misspelt name is an error before the work begins
    written = export(find_trained(options.run, options.experiment), options.out, options.exporter)
    contract = written.contract
    num_bytes = (written.folder / MODEL).stat().st_size
    if options.json:
        facts = {
            "path": str(options.out),
            "experiment": contract.experiment,
            "variant": contract.training.variant,
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
    name = contract.experiment or "no experiment"
    about = f"{name}, {contract.training.variant}, {num_bytes / 1e6:.2f} MB"
    agreement = f"differ by at most {written.deviation:.0e} on {len(contract.checks.obs)} check vectors"
    print(f"wrote {options.out} ({about}): ONNX and PyTorch {agreement}")
    if contract.control is None:
        why = f"{name} has no `deploy` section" if contract.experiment else "--experiment NAME was not given"
        print(f"no robot can run it: the contract has no control, because {why}")
