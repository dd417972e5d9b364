"""`bot export POLICY --out DIR`: a policy as ONNX, with the contract that a robot's computer needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import unknown
from ..policy_folder import MODEL, find_policy
from ..rl.registry import MJLAB, names, need_mjlab
from ..run import Run
from .output import print_json, say
from .run_options import Flag

if TYPE_CHECKING:
    from ..deploy.config import Sections
    from ..deploy.export import Exported, Trained
    from ..policy_folder import PolicyFolder


@dataclass
class Export:
    """Write policy.onnx (with the normaliser), policy.json with the contract (joints, observation, gains, limits, check
    vectors), and the weights. A robot's computer needs the first two."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="POLICY")]
    """A run folder (its newest checkpoint), a checkpoint, a saved or exported policy, or pretrained:NAME."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the export, which appears when it is complete. An earlier export there is replaced."""
    experiment: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The experiment whose `deploy` section goes into the contract, or mjlab:TASK; needed for a policy saved outside a
    run."""
    exporter: Literal["torchscript", "dynamo"] = "torchscript"
    """PyTorch's ONNX exporter. The files of both are equally fast, and dynamo takes much longer."""
    json: Flag = False
    """Print one JSON object instead of a sentence."""


def main(args: list[str]) -> None:
    options = tyro.cli(Export, prog="bot export", args=args)
    from ..deploy.export import export, find_trained
    from ..experiment import load_experiment

    asked = options.experiment
    if asked is not None and not asked.startswith(MJLAB):
        load_experiment(asked)  # a misspelt name is an error before the work begins
    elif asked is not None and asked not in names():
        raise ValueError(unknown("task", asked, names()))
    trained, missing = find_trained(options.run, asked), ""
    if trained.sections is None and (trained.experiment or "").startswith(MJLAB):
        try:
            trained = replace(trained, sections=environment_sections(trained, find_policy(options.run)))
        except ValueError as error:
            missing = str(error)
    written = export(trained, options.out, options.exporter)
    facts = _facts(written, options)
    if options.json:
        print_json(facts)
        return
    name = facts["experiment"] or "no experiment"
    about = f"{name}, {facts['variant']}, {facts['bytes'] / 1e6:.2f} MB"
    agreement = f"differ by at most {written.deviation:.0e} on {facts['check_vectors']} check vectors"
    say(f"wrote {options.out} ({about}): ONNX and PyTorch {agreement}")
    if facts["control"] is None:
        why = f"{name} has no `deploy` section" if facts["experiment"] else "--experiment NAME was not given"
        say(f"no robot can run it: the contract has no control, because {missing or why}")


def _facts(written: Exported, options: Export) -> dict[str, Any]:
    """Return the content of the JSON object."""
    contract = written.contract
    return {
        "path": str(options.out),
        "experiment": contract.experiment,
        "variant": contract.training.variant,
        "exporter": options.exporter,
        "obs_dim": contract.obs_dim,
        "action_dim": contract.action_dim,
        "control": None if contract.control is None else contract.control.kind,
        "bytes": (written.folder / MODEL).stat().st_size,
        "model_sha256": contract.model_sha256,
        "layout_sha256": contract.layout_sha256,
        "check_vectors": len(contract.checks.obs),
        "largest_deviation": written.deviation,
    }


def environment_sections(trained: Trained, found: PolicyFolder) -> Sections:
    """Return the contract's sections of a policy of one of mjlab's tasks."""
    from ..rl.config import RlConfig

    need_mjlab()
    from ..rl.env_deploy import task_sections

    described = Run.open(found.run).description() if found.run else {}
    config = RlConfig.from_run(described["rl"]) if "rl" in described else RlConfig(task=str(trained.experiment))
    return task_sections(trained.policy.layout, config, (found.step or 0) * config.num_steps_per_env)
