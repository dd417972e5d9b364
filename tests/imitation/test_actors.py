"""DAPG's experts: the network, its file, and their success."""

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from body_transformer import BodyGraph, Layout, Policy, PolicyConfig, Term
from body_transformer.experiment import load_experiment
from body_transformer.imitation.actors import SHAPES, Floats, acting, dapg_actor, load_dapg
from body_transformer.imitation.tasks.adroit import ENVIRONMENTS, AdroitTask

EXPERTS = Path(__file__).parents[2] / "../shared/data/adroit_experts"
LENGTHS = {"obs": 5, "hidden 0": 3, "hidden 1": 4, "action": 2}


def test_observations_that_are_not_finite_are_refused_by_name() -> None:
    graph = BodyGraph.from_edges(["a"], [], joints={"x": "a"})
    layout = Layout(graph, [Term.root("gravity", 3), Term.joints("pos", ["x"])], Term.joints("ctrl", ["x"]))
    act = acting(Policy(layout, PolicyConfig(embed_dim=8, num_layers=1)))
    obs = np.zeros((3, 4), np.float32)
    obs[1, 2] = math.nan
    with pytest.raises(ValueError, match=r"^observations are not finite \(NaN or infinite\): 'gravity.2'$"):
        act(obs)


def random_arrays(seed: int = 0) -> dict[str, Floats]:
    random = np.random.default_rng(seed)
    return {
        name: random.standard_normal([LENGTHS[axis] for axis in axes]).astype(np.float32)
        for name, axes in SHAPES.items()
    }


def scalar_forward(of: dict[str, Floats], obs: Floats) -> list[float]:
    """Return the output for one observation, computed number by number."""
    x = [float((v - s) / (c + 1e-8)) for v, s, c in zip(obs, of["in_shift"], of["in_scale"], strict=True)]
    for weight, bias in (("W0", "b0"), ("W1", "b1")):
        x = [
            math.tanh(sum(float(w) * v for w, v in zip(row, x, strict=True)) + float(b))
            for row, b in zip(of[weight], of[bias], strict=True)
        ]
    x = [sum(float(w) * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(of["W2"], of["b2"], strict=True)]
    return [float(v * c + s) for v, c, s in zip(x, of["out_scale"], of["out_shift"], strict=True)]


def test_the_mean_action_is_the_networks_output() -> None:
    arrays = random_arrays()
    policy = dapg_actor(arrays)
    obs = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
    expected = np.array([scalar_forward(arrays, one) for one in obs])
    assert (np.abs(expected) > 1).any()
    assert (np.abs(expected) < 1).any()
    np.testing.assert_allclose(policy.mean(obs), expected, atol=1e-5)
    assert policy.mean(obs).dtype == np.float32
    assert (policy.obs_dim, policy.action_dim) == (5, 2)


def test_a_saved_expert_is_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "expert.npz", **random_arrays())  # type: ignore[arg-type]
    loaded, expert = load_dapg(tmp_path / "expert.npz"), dapg_actor(random_arrays())
    obs = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
    np.testing.assert_array_equal(loaded.mean(obs), expert.mean(obs))
    np.testing.assert_array_equal(loaded.std, np.exp(random_arrays()["log_std"].astype(np.float64)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W1": None}, "missing: 'W1'"),
        ({"W3": np.zeros(2, np.float32)}, "unknown: 'W3'"),
        ({"b0": np.zeros(4, np.float32)}, r"b0 of a DAPG policy must be \[3\]; got \[4\]"),
        ({"W1": np.zeros((4, 2), np.float32)}, r"W1 of a DAPG policy must be \['hidden 1', 3\]; got \[4, 2\]"),
        ({"log_std": np.zeros((2, 1), np.float32)}, r"log_std of a DAPG policy must be \[2\]; got \[2, 1\]"),
        ({"b2": np.full(2, np.nan, np.float32)}, "b2 of a DAPG policy must be finite"),
        ({"b2": np.zeros(2, np.int64)}, "b2 of a DAPG policy must be finite float32 numbers"),
        ({"b2": np.array([{}, {}], dtype=object)}, "allow_pickle=False"),
    ],
)
def test_invalid_arrays_are_named(tmp_path: Path, change: dict[str, Floats | None], message: str) -> None:
    arrays = {name: array for name, array in (random_arrays() | change).items() if array is not None}
    np.savez(tmp_path / "expert.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"expert.npz: not a DAPG policy: .*{message}"):
        load_dapg(tmp_path / "expert.npz")


def test_a_file_that_is_missing_or_not_an_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.npz: no such file"):
        load_dapg(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"text.npz: not a DAPG policy: .*zip"):
        load_dapg(tmp_path / "text.npz")


@pytest.mark.skipif(not EXPERTS.is_dir(), reason="the DAPG experts are not available")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_expert_solves_its_task(name: str) -> None:
    with closing(AdroitTask(load_experiment(f"adroit-{name}").layout(), name, 1)) as task:
        results = task.rollouts(load_dapg(EXPERTS / f"{name}.npz").mean, 4, 0, "validation")
    assert [result.success for result in results] == [True] * 4
