import io
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from body_transformer import Critic
from body_transformer.model.variants import VARIANTS

from .bodies import make_policy, random_obs, small

OPTIONS = [
    *({"variant": variant} for variant in VARIANTS),
    {
        "variant": "bot-mix",
        "shared_tokenizer": True,
        "norm": "pre",
        "activation": "gelu",
        "squash": "tanh",
        "obs_clip": 5.0,
        "head": "gaussian",
        "positional_encoding": False,
    },
    {"variant": "bot-hard", "head": "gaussian", "std": "fixed"},
]
ALL = pytest.mark.parametrize("changes", OPTIONS, ids=[*VARIANTS, "every option", "fixed std"])
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # PyTorch's own, about TorchScript and its ONNX exporter
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Constant folding"),
]


@pytest.fixture
def policy(layout, changes) -> nn.Module:
    policy = make_policy(layout, num_layers=2, **changes).eval()
    policy.normalizer.set_statistics(torch.randn(layout.obs_dim), torch.rand(layout.obs_dim) + 0.5)
    return policy


def batches(layout) -> list[Tensor]:
    return [random_obs(layout, batch) for batch in (1, 2, 7)]


@ALL
def test_torch_export_supports_any_batch_size(policy, layout):
    batch = torch.export.Dim("batch")
    program = torch.export.export(policy, (random_obs(layout, 3),), dynamic_shapes=({0: batch},)).module()
    for obs in batches(layout):
        torch.testing.assert_close(program(obs), policy(obs), atol=1e-6, rtol=1e-5)


@ALL
def test_torch_jit_trace_supports_any_batch_size(policy, layout):
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)  # the tracer warns where it makes a size constant
        traced = torch.jit.trace(policy, random_obs(layout, 3))
    for obs in batches(layout):
        torch.testing.assert_close(traced(obs), policy(obs), atol=1e-6, rtol=1e-5)


@ALL
def test_a_scripted_policy_still_checks_the_shape_of_observations(policy, layout):
    scripted = stored(torch.jit.script(policy))
    for obs in batches(layout):
        torch.testing.assert_close(scripted(obs), policy(obs), atol=1e-6, rtol=1e-5)
    with pytest.raises(torch.jit.Error, match=r"obs must be \[B, 17\]; got \[2, 5\]"):
        scripted(torch.zeros(2, 5))


def stored(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Return the module after saving and loading."""
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def export(policy, layout, onnx_file, **how):
    names = {"input_names": ["obs"], "output_names": ["action"]}
    torch.onnx.export(policy, (random_obs(layout, 3),), onnx_file, **names, **how)
    assert_onnx_runtime_agrees(onnx_file, policy, layout)


@pytest.mark.parametrize(
    "changes", [OPTIONS[k] for k in (0, 3, 4, 7)], ids=["mlp", "bot-mix", "bot-soft", "every option"]
)
def test_the_dynamo_onnx_exporter_supports_the_policy(policy, layout, tmp_path):
    pytest.importorskip("onnxscript")
    batch = ({0: torch.export.Dim("batch")},)
    export(policy, layout, tmp_path / "policy.onnx", dynamo=True, dynamic_shapes=batch, verbose=False)


@ALL
def test_the_older_onnx_exporter_supports_the_policy(policy, layout, tmp_path):
    pytest.importorskip("onnx")
    batch = {"obs": {0: "batch"}, "action": {0: "batch"}}
    export(policy, layout, tmp_path / "policy.onnx", dynamo=False, dynamic_axes=batch)


def assert_onnx_runtime_agrees(onnx_file: Path, policy: nn.Module, layout) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_file, options, providers=["CPUExecutionProvider"])
    for obs in batches(layout):
        (actions,) = session.run(["action"], {"obs": obs.numpy()})
        np.testing.assert_allclose(actions, policy(obs).detach().numpy(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("variant", ["mlp", "bot-mix"])
def test_the_critic_can_be_exported_and_scripted_too(variant, layout):
    critic = Critic(layout, small(variant=variant)).eval()
    obs = random_obs(layout, 3)
    program = torch.export.export(critic, (obs,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    scripted = torch.jit.script(critic)
    for batch in batches(layout):
        torch.testing.assert_close(program(batch), critic(batch))
        torch.testing.assert_close(scripted(batch), critic(batch))
