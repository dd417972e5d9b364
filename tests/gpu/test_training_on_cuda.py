"""Updates and actions that are recorded and replayed on a GPU equal eager ones."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from body_transformer import Policy, PolicyConfig
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.actors import acting
from body_transformer.imitation.losses import CloningLoss
from body_transformer.imitation.train import Update
from body_transformer.training import cuda_graphs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

LAYOUT = load_experiment("demo").layout()
VARIANTS = ("bot-hard", "transformer", "mlp")
NUM_UPDATES = 12


@pytest.fixture(autouse=True)
def fresh_accelerate() -> Iterator[None]:
    """Reset Accelerate, which keeps the first precision of a process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def batch(seed: int, size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = (size, LAYOUT.obs_dim), (size, LAYOUT.action_dim)
    obs, actions = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return obs, actions


def updated(variant: str, rates: list[float], precision: str) -> tuple[Policy, float]:
    """Return a policy after one update per rate, and the sum of the losses."""
    torch.manual_seed(0)
    policy = Policy(LAYOUT, PolicyConfig(variant=variant, num_layers=2))
    module = CloningLoss(policy, "mse", torch.arange(LAYOUT.obs_dim))
    update = Update(module, 0.01, Accelerator(mixed_precision=precision))
    for seed, rate in enumerate(rates):
        update(*batch(seed), rate)
    return policy, float(update.loss_sum)


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_recorded_updates_equal_eager_ones(monkeypatch, variant, precision):
    rates = [1e-3 * (k + 1) for k in range(NUM_UPDATES)]
    recorded, loss = updated(variant, rates, precision)
    monkeypatch.setattr(cuda_graphs, "NUM_EAGER", NUM_UPDATES)
    plain, loss_of_plain = updated(variant, rates, precision)
    assert loss == pytest.approx(loss_of_plain, rel=1e-6)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(recorded.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_a_recorded_update_follows_the_learning_rate():
    before, _ = updated("bot-hard", [1e-3] * 8, "no")
    after, _ = updated("bot-hard", [1e-3] * 8 + [0.0] * 4, "no")
    other, _ = updated("bot-hard", [1e-3] * 12, "no")
    for name, value in before.named_parameters():
        assert torch.equal(after.get_parameter(name), value), name
    assert any(not torch.equal(other.get_parameter(name), value) for name, value in before.named_parameters())


def test_a_recorded_function_changes_the_same_tensors_in_place():
    count = torch.zeros((), device="cuda")

    def add(x: torch.Tensor) -> torch.Tensor:
        count.add_(x.sum())
        return 2 * x

    twice = cuda_graphs.CudaGraphed(add)
    for k in range(8):
        x = torch.full((3,), float(k), device="cuda")
        assert torch.equal(twice(x), 2 * x)
        assert torch.equal(twice(x[:1]), 2 * x[:1])
    assert float(count) == 4 * sum(range(8))


@pytest.mark.parametrize("variant", VARIANTS)
def test_actions_follow_weights_that_change_after_recording(variant):
    policy = Policy(LAYOUT, PolicyConfig(variant=variant, num_layers=2)).cuda()
    act = acting(policy)
    for seed in range(8):
        obs, _ = batch(seed, size=5 if seed % 2 else 7)
        with torch.no_grad():
            expected = policy(torch.from_numpy(obs).cuda()).cpu().numpy()
            np.testing.assert_allclose(act(obs), expected, rtol=1e-5, atol=1e-6)
            for parameter in policy.parameters():
                parameter.mul_(0.9)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    obs, _ = batch(0, 600)
    weights = np.random.default_rng(1).standard_normal((LAYOUT.obs_dim, LAYOUT.action_dim)) / LAYOUT.obs_dim**0.5
    file = tmp_path_factory.mktemp("data") / "linear.npz"
    np.savez(file, obs=obs, actions=(obs @ weights).astype(np.float32), episode_ends=np.arange(50, 601, 50))
    return file


def test_the_command_learns_and_resumes_a_stopped_run(data, tmp_path):
    def losses(run: Path) -> list[float]:
        return [json.loads(line)["train/loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]

    def train(run: Path, num_steps: int) -> None:
        known = ["--imitation.reader", "npz", "--imitation.data", str(data), "--imitation.batch-size", "64"]
        often = ["--imitation.log-every", "20", "--imitation.schedule", "constant"]
        steps = ["--imitation.num-steps", str(num_steps)]
        assert main(["train", "demo", *known, *often, *steps, "--out", str(run), "--no-eval", "--quiet"]) == 0

    train(tmp_path / "whole", 120)
    assert losses(tmp_path / "whole")[-1] < 0.7 * losses(tmp_path / "whole")[0]
    stopped = tmp_path / "stopped"
    train(stopped, 60)
    description = (stopped / "experiment.yaml").read_text()
    assert "num_steps: 60" in description
    (stopped / "experiment.yaml").write_text(description.replace("num_steps: 60", "num_steps: 120"))
    assert main(["train", "--resume", str(stopped), "--no-eval", "--quiet"]) == 0
    assert losses(stopped) == pytest.approx(losses(tmp_path / "whole"), rel=2e-2)
