"""Compute the numbers that a change of the code's structure must not change.

`values.json` holds these numbers as the code at commit 7c00f5b computes them, and `test_frozen.py` compares today's
code with that file. This file imports public names only, so renamed internals do not change it.

Where a number has to change, say why in the commit, and write only the sections that it concerns, for example:

    PYTHONPATH=src python tests/frozen/make.py actions trainings
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from body_transformer import Critic, Policy, PolicyConfig, authors, pretrained
from body_transformer.cli.main import main as bot
from body_transformer.experiment import experiment_names, load_experiment
from body_transformer.model.variants import VARIANTS

VALUES = Path(__file__).with_name("values.json")
GOLDEN = Path(__file__).parents[3] / "shared" / "reference" / "golden" / "door_hard.safetensors"
"""A model of the paper's authors, with observations and actions."""
NUM_ROWS = 3

SMALL = {"embed_dim": 16, "num_layers": 3, "num_heads": 2, "ff_dim": 24, "mlp_dim": 20}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pre-norm": {"norm": "pre"},
    "gelu": {"activation": "gelu"},
    "shared tokenizer": {"shared_tokenizer": True},
    "no position": {"positional_encoding": False},
    "gaussian": {"head": "gaussian", "std": "fixed", "init_std": 0.5},
    "tanh": {"squash": "tanh", "obs_clip": 1.0},
    "init normal": {"init": "normal"},
    "init normal-encoder": {"init": "normal-encoder"},
    "init far": {"init": "far", "norm": "pre", "activation": "gelu"},
    "mask seed": {"mask_seed": 5},
}

SMALL_FLAGS = ["--policy.embed-dim", "8", "--policy.num-layers", "2", "--policy.ff-dim", "8", "--cpu", "--quiet"]
TRAININGS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "imitation, built-in task": (
        "demo",
        ["--variant", "bot-hard", "--imitation.options", "num_clips", "2", "repetitions", "1"],
        {"num_steps": 20, "batch_size": 32, "warmup_steps": 5, "eval_episodes": 2},
    ),
    "imitation, npz, likelihood": (
        "demo",
        ["--variant", "bot-mix", "--policy.head", "gaussian", "--no-eval", "--seed", "3"],
        {"reader": "npz", "data": "DATA", "loss": "likelihood", "num_steps": 20, "batch_size": 32, "num_demos": 8},
    ),
    "imitation, npz, mlp": (
        "demo",
        ["--variant", "mlp", "--policy.mlp-dim", "12", "--no-eval"],
        {"reader": "npz", "data": "DATA", "schedule": "cosine", "num_steps": 20, "batch_size": 32},
    ),
    "PPO, humanoid-mod": ("humanoid-mod", ["--variant", "bot-mix"], {"minibatch_by_env": True}),
    "PPO, humanoid-board, mlp": (
        "humanoid-board",
        ["--variant", "mlp", "--policy.mlp-dim", "12", "--rl.options", "privileged_critic", "true"],
        {"final_std": 0.5, "std_iterations": 3, "kl_reference": "epoch"},
    ),
    "PPO, a1-walk": ("a1-walk", ["--variant", "bot-hard"], {"num_envs": 8}),
    "PPO, a1-command": ("a1-command", ["--variant", "bot-mix"], {"num_envs": 8}),
    "PPO, mjlab's cartpole": ("mjlab:Mjlab-Cartpole-Balance", ["--variant", "bot-mix"], {}),
}
"""Name -> experiment, flags, settings of its `--imitation` or `--rl` section."""
PPO = {
    "num_envs": 4,
    "num_steps_per_env": 6,
    "num_mini_batches": 2,
    "num_learning_epochs": 2,
    "max_iterations": 3,
    "eval_episodes": 1,
    "eval_every": "None",
}


def rounded(value: Any) -> Any:
    """Return the value with nine significant digits for each number, which is exact for float32."""
    if isinstance(value, Tensor | np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def observations(dim: int, rows: int = NUM_ROWS) -> Tensor:
    """Return `[rows, dim]` numbers that depend on no random generator."""
    return (torch.arange(rows * dim, dtype=torch.float64).mul(0.7).sin() * 1.5).float().reshape(rows, dim)


def quietly(args: list[str]) -> str:
    """Run a `bot` command and return its standard output; an error of the command is raised."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = bot(args)
    if status:
        raise RuntimeError(f"bot {' '.join(args)} ended with {status}: {err.getvalue()}")
    return out.getvalue()


def tables() -> dict[str, Any]:
    """Return the numbers of `bot inspect --json` for every experiment and variant."""
    found = {}
    for name in experiment_names():
        by_variant = {
            variant: json.loads(quietly(["inspect", name, "--variant", variant, "--json"])) for variant in VARIANTS
        }
        common = next(iter(by_variant.values())) | {"variant": None, "parameters": None}
        assert all(said | {"variant": None, "parameters": None} == common for said in by_variant.values())
        found[name] = common | {"parameters": {variant: said["parameters"] for variant, said in by_variant.items()}}
        del found[name]["variant"]
    return found


def state_dicts() -> dict[str, Any]:
    """Return keys and shapes, in order, of every policy and critic; equal ones are stored once, equal layers as one."""
    shapes: dict[str, Any] = {}
    cases = {}
    for name in experiment_names():
        experiment = load_experiment(name)
        layouts = {"policy": experiment.layout()} | (
            {"critic": experiment.critic_layout()} if experiment.critic else {}
        )
        for variant in VARIANTS:
            config = experiment.policy_config(variant)
            for part, layout in layouts.items():
                with torch.device("meta"):
                    found = _shapes((Policy if part == "policy" else Critic)(layout, config), config.num_layers)
                digest = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:12]
                shapes[digest] = found
                cases[f"{name} {variant} {part}"] = digest
    return {"shapes": shapes, "cases": cases}


def _shapes(module: nn.Module, num_layers: int) -> list[Any]:
    """Return `[name, shape]` of each tensor; layer 0 stands for all layers, which must be equal to it."""
    all_shapes = {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
    first = {name: shape for name, shape in all_shapes.items() if ".layers.0." in name}
    if module.config.variant == "mlp":
        return [list(item) for item in all_shapes.items()]
    assert first
    for k in range(num_layers):
        layer = {
            name.replace(f".layers.{k}.", ".layers.0."): all_shapes[name]
            for name in all_shapes
            if f".layers.{k}." in name
        }
        assert list(layer.items()) == list(first.items())
    kept = [[name, shape] for name, shape in all_shapes.items() if ".layers." not in name or name in first]
    return [*kept, ["layers", [num_layers]]]


def actions() -> dict[str, Any]:
    """Return actions of shipped, fresh and golden policies on fixed observations."""
    found: dict[str, Any] = {}
    for name in pretrained.names():
        policy = Policy.load(pretrained.path(name))
        found[f"pretrained:{name}"] = {"actions": rounded(_act(policy))}
    experiment = load_experiment("a1-walk")
    for variant in VARIANTS:
        for label, options in OPTIONS.items():
            if label == "mask seed" and "random" not in variant:
                continue
            config = PolicyConfig(variant=variant, **SMALL | options)
            torch.manual_seed(0)
            policy = Policy(experiment.layout(), config)
            found[f"{variant}, {label}"] = {"actions": rounded(_act(policy)), "gradient": _gradient(policy)}
            if label in ("plain", "pre-norm", "shared tokenizer"):
                critic = Critic(experiment.critic_layout(), config)
                found[f"{variant}, {label}, critic"] = {
                    "actions": rounded(_act(critic)),
                    "gradient": _gradient(critic),
                }
    if GOLDEN.is_file():
        policy = authors.load(GOLDEN, experiment="adroit-door", variant="bot-hard")
        found["golden"] = {"actions": rounded(_act(policy))}
    return found


def _act(module: nn.Module) -> Tensor:
    with torch.no_grad():
        out: Tensor = module(observations(module.obs_dim))
    return out


def _gradient(module: nn.Module) -> float:
    """Return the norm of the gradient of the summed squares of the output."""
    module(observations(module.obs_dim)).square().sum().backward()
    squares = [
        parameter.grad.double().square().sum() for parameter in module.parameters() if parameter.grad is not None
    ]
    return float(f"{float(torch.stack(squares).sum().sqrt()):.6g}")


def trainings() -> dict[str, Any]:
    """Return the final weights of small seeded trainings on the CPU, and their last evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: training(name, Path(folder) / str(k)) for k, name in enumerate(TRAININGS)}


def training(name: str, folder: Path) -> dict[str, Any]:
    """Train as the table says, in `folder`."""
    experiment, flags, settings = TRAININGS[name]
    section = "imitation" if name.startswith("imitation") else "rl"
    settings = settings if section == "imitation" else PPO | settings
    flags = [*flags, *SMALL_FLAGS]
    for key, value in settings.items():
        flag = f"--{section}.{key.replace('_', '-')}"
        if isinstance(value, bool):
            flags.append(flag if value else f"--{section}.no-{key.replace('_', '-')}")
        else:
            flags += [flag, _write_data(folder.with_suffix(".npz")) if value == "DATA" else str(value)]
    with one_thread(), short_episodes() if experiment.startswith("mjlab:") else nullcontext():
        quietly(["train", experiment, *flags, "--out", str(folder)])
    policy = Policy.load(folder / "checkpoints" / "last")
    return weights(folder) | {"actions": rounded(_act(policy))} | _evaluation(folder)


def weights(run: Path) -> dict[str, Any]:
    """Return a digest of the last checkpoint's weights, and sums of each tensor."""
    tensors = load_file(run / "checkpoints" / "last" / "policy.safetensors")
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    sums = {
        name: [float(f"{float(value):.7g}") for value in (tensor.double().sum(), tensor.double().abs().sum())]
        for name, tensor in sorted(tensors.items())
    }
    return {"sha256": digest.hexdigest(), "sums": sums}


def _evaluation(run: Path) -> dict[str, Any]:
    file = run / "evaluation.json"
    if not file.is_file():
        return {}
    splits = json.loads(file.read_text())["splits"]
    return {
        "evaluation": {
            split: {metric: rounded(value["mean"]) for metric, value in metrics.items()}
            for split, metrics in splits.items()
        }
    }


def _write_data(file: Path) -> str:
    """Write twelve episodes whose actions are a linear function of the observation."""
    layout = load_experiment("demo").layout()
    obs = observations(layout.obs_dim, 600).numpy()
    weights = observations(layout.action_dim, layout.obs_dim).numpy() / np.float32(layout.obs_dim**0.5)
    np.savez(file, obs=obs, actions=obs @ weights, episode_ends=np.arange(50, 601, 50))
    return str(file)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread while the context is entered, because more threads add in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def short_episodes() -> Iterator[None]:
    """End episodes of mjlab's tasks after one second while the context is entered, for a short last evaluation."""
    from mjlab.tasks import registry

    def load(*args: Any, **options: Any) -> Any:
        cfg = original(*args, **options)
        cfg.episode_length_s = 1.0
        return cfg

    original = registry.load_env_cfg
    with patch.object(registry, "load_env_cfg", load):
        yield


def contracts() -> dict[str, Any]:
    """Return the contracts of two exported policies, one with and one without a robot."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = ["--variant", "mlp", *SMALL_FLAGS, "--no-eval", "--imitation.reader", "npz"]
        flags += ["--imitation.data", _write_data(folder / "data.npz"), "--imitation.num-steps", "2"]
        with one_thread():
            quietly(["train", "demo", *flags, "--out", str(folder / "run")])
        return {
            source: contract(where, folder / source)
            for source, where in (("pretrained-a1-walk", "pretrained:a1-walk"), ("demo", str(folder / "run")))
        }


def contract(source: str, out: Path) -> dict[str, Any]:
    """Export a policy and return the content of its contract."""
    quietly(["export", source, "--out", str(out)])
    content = json.loads((out / "policy.json").read_text())
    content = {**content, **content.get("contract", {})}
    layout = content["layout"] if "layout" in content else content["policy"]["layout"]
    training = {key: value for key, value in content["training"].items() if key not in ("date", "commit", "command")}
    return rounded(
        {
            "experiment": content["experiment"],
            "obs": content["obs"],
            "control": content["control"],
            "exported": content["exported"],
            "training": training,
            "training_keys": sorted(content["training"]),
            "layout": hashlib.sha256(json.dumps(layout, sort_keys=True).encode()).hexdigest(),
            "checks": {
                key: {"rows": len(rows), "first": rows[0][:20], "last": rows[-1][:20]}
                for key, rows in content["checks"].items()
            },
        }
    )


def machine() -> dict[str, str]:
    """Return the software and hardware that the last bit of a float32 sum depends on."""
    return {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "machine": platform.machine()}


SECTIONS: dict[str, Callable[[], Any]] = {
    "machine": machine,
    "tables": tables,
    "state_dicts": state_dicts,
    "actions": actions,
    "trainings": trainings,
    "contracts": contracts,
}


def write(content: Mapping[str, Mapping[str, Any]]) -> None:
    """Write `values.json`, one line per entry of a section."""
    sections = []
    for name in SECTIONS:
        entries = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content[name].items()]
        sections.append(f"{json.dumps(name)}: {{\n" + ",\n".join(entries) + "\n}")
    VALUES.write_text("{\n" + ",\n".join(sections) + "\n}\n")


if __name__ == "__main__":
    known = json.loads(VALUES.read_text()) if VALUES.is_file() else {}
    write(known | {name: SECTIONS[name]() for name in sys.argv[1:] or SECTIONS})
