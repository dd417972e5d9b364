"""Readers of policies, checkpoints, exported policies and the authors' weights."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from body_transformer import Policy, PolicyConfig
from body_transformer.checkpoint import TrainingState, newest_checkpoint, save_checkpoint
from body_transformer.deploy.contract import FIXED, Contract
from body_transformer.policy_folder import description_digest
from body_transformer.schema import json_digest

from ..deploy.conftest import make_policy, make_run
from ..imitation.readers.small import LAYOUT
from .binary import join_safetensors, split_safetensors
from .inputs import Files, Reader

SMALL = {"embed_dim": 8, "num_layers": 2, "num_heads": 2, "ff_dim": 8, "mlp_dim": 8}


def small_policy(variant: str, **changes: Any) -> Policy:
    """Return a policy of a few weights."""
    torch.manual_seed(0)
    return Policy(LAYOUT, PolicyConfig(variant=variant, **{**SMALL, **changes}))


def _policies(folder: Path) -> None:
    small_policy("bot-mix", head="gaussian").save(folder / "mix")
    small_policy("bot-soft", norm="pre", obs_clip=5.0).save(folder / "soft")
    small_policy("mlp", shared_tokenizer=True).save(folder / "mlp")


def _read_policy(folder: Path) -> None:
    policy = Policy.load(folder)
    with torch.no_grad():
        policy(torch.zeros(2, policy.obs_dim))


def seal(chance: Random, files: Files) -> None:
    """Renew the digests in policy.json and in the weights' metadata."""
    for place in {name.removesuffix("policy.json") for name in files if name.endswith("policy.json")}:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, IndexError):
            _seal(files, place)


def _seal(files: Files, place: str) -> None:
    content = json.loads(files[f"{place}policy.json"] or b"")
    weights = files.get(f"{place}policy.safetensors")
    if weights is not None:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
            header, data = split_safetensors(weights)
            header["__metadata__"]["description_sha256"] = description_digest(content)
            weights = join_safetensors(header, data)
        files[f"{place}policy.safetensors"] = weights
        content["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    if (model := files.get(f"{place}policy.onnx")) is not None:
        content["model_sha256"] = hashlib.sha256(model).hexdigest()
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        _seal_contract(files, place, content)
    files[f"{place}policy.json"] = json.dumps(content).encode()


def _seal_contract(files: Files, place: str, content: dict[str, Any]) -> None:
    contract = content["contract"]
    contract["layout_sha256"] = json_digest(content["policy"]["layout"])
    if (robot := files.get(f"{place}robot.xml")) is not None:
        contract["robot_sha256"] = hashlib.sha256(robot).hexdigest()
    control = {name: contract["control"][name] for name in FIXED}
    parts = {"control": control, "exported": contract["exported"], "obs": contract["obs"]}
    if "environment" in contract:
        parts["environment"] = contract["environment"]
    contract["trained_sha256"] = json_digest(parts)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def _checkpoints(folder: Path) -> None:
    policy = small_policy("bot-hard")
    state = TrainingState({"loss_sum": torch.zeros(()), "random": torch.get_rng_state()}, {"step": 3, "loss_count": 1})
    for step in (2, 3):
        save_checkpoint(folder / "one", step, policy, state)
    (folder / "one" / "checkpoints" / "last").unlink()


def _read_checkpoint(folder: Path) -> None:
    newest_checkpoint(folder)


def seal_checkpoint(chance: Random, files: Files) -> None:
    seal(chance, files)
    for name in [name for name in files if name.endswith("training_state.json")]:
        tensors = files.get(name.replace(".json", ".safetensors"))
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
            content = json.loads(files[name] or b"")
            content["tensors_sha256"] = hashlib.sha256(tensors or b"").hexdigest()
            files[name] = json.dumps(content).encode()


# -- exported policies -------------------------------------------------------------------------------------------------


def _exports(folder: Path) -> None:
    from body_transformer.deploy.export import export, find_trained

    for variant in ("bot-mix", "mlp"):
        run = make_run(folder.parent / f".run-{variant}", make_policy(variant=variant))
        export(find_trained(run), folder / variant)


def _read_contract(folder: Path) -> None:
    from body_transformer.deploy.controller import Controller
    from body_transformer.deploy.runtime_config import RuntimeConfig, control_of
    from body_transformer.deploy.safety import SafetyConfig

    contract = Contract.read(folder)
    joints = control_of(contract).joints
    actions = np.zeros(contract.action_dim, np.float32)
    controller = Controller(contract, lambda obs: actions, joints, RuntimeConfig(loop_hz=100.0), SafetyConfig())
    for tick in range(3):
        controller.step(tick, 0.01 * tick, None, 0)


def _read_network(folder: Path) -> None:
    """Check a network without running it, as the first step of `_read_export`."""
    from body_transformer.deploy.onnx_check import check_onnx

    check_onnx(Contract.read(folder).model(folder), str(folder))


def _read_export(folder: Path) -> None:
    from body_transformer.deploy.policy import OnnxPolicy

    policy = OnnxPolicy(folder)
    policy(np.zeros(policy.contract.obs_dim, np.float32))


# -- the authors' weights ----------------------------------------------------------------------------------------------


def _authors(folder: Path) -> None:
    from body_transformer.authors import _places
    from body_transformer.experiment import load_experiment

    known = load_experiment("adroit-door")
    for variant in ("bot-hard", "mlp"):
        torch.manual_seed(0)
        policy = Policy(known.layout(), PolicyConfig(variant=variant, **SMALL))
        tensors = {name: ours[index].contiguous().clone() for name, (ours, index) in _places(policy, {}).items()}
        (folder / variant).mkdir()
        save_file(tensors, folder / variant / "weights.safetensors", {"num_heads": "2"})


def _read_authors(folder: Path) -> None:
    from body_transformer.authors import load

    errors = []
    for variant in ("bot-hard", "mlp"):
        try:
            load(folder / "weights.safetensors", "adroit-door", variant)
            return
        except ValueError as error:
            errors.append(error)
    raise errors[0]


POLICIES = {
    "policy": Reader(_policies, _read_policy, seal=seal),
    "checkpoint": Reader(_checkpoints, _read_checkpoint, seal=seal_checkpoint),
    "contract": Reader(_exports, _read_contract, seal=seal, only=("policy.json",)),
    "onnx": Reader(_exports, _read_network, seal=seal, only=("policy.onnx",)),
    "onnx-run": Reader(_exports, _read_export, seal=seal, only=("policy.onnx",), cost=20),
    "authors-weights": Reader(_authors, _read_authors),
}
