"""The choice of the backend of body attention."""

import re
from pathlib import Path

import pytest
import torch

from body_transformer.ops.body_attention import BACKENDS, body_attention, choose_backend

from .attention_cases import make_problem, tree

MEASURED = Path(__file__).parents[2] / "benchmarks/results/crossovers_h200.md"


@pytest.mark.parametrize("device_type", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("num_nodes", [1, 5, 8, 16, 25, 128, 129, 16_384, 20_000])
@pytest.mark.parametrize("head_dim", [8, 128, 160])
@pytest.mark.parametrize("density", [0.0005, 0.3, 1.0])
def test_the_table_has_a_row_for_every_problem_and_its_backend_supports_it(
    device_type, dtype, num_nodes, head_dim, density
):
    for bias in (False, True):
        backend = BACKENDS[choose_backend(device_type, dtype, num_nodes, head_dim, density, bias)]
        assert dtype in backend.dtypes
        assert num_nodes <= (backend.max_nodes or num_nodes)
        assert head_dim <= (backend.max_head_dim or head_dim)
        assert backend.max_rows is None or choose_backend(
            device_type, dtype, num_nodes, head_dim, density, bias, backend.max_rows + 1
        ) in ("reference", "neighbours")
        assert device_type == "cuda" or not backend.needs_triton
        assert density < 1 or not backend.needs_mask  # a missing mask counts as density 1


def test_without_triton_plain_pytorch_is_chosen(monkeypatch):
    monkeypatch.setattr("body_transformer.ops.body_attention.choose.HAS_TRITON", False)
    assert choose_backend("cuda", torch.float32, 1024, 64, 0.003) == "neighbours"
    assert choose_backend("cuda", torch.float32, 32, 64, 0.1) == "reference"


def test_on_the_cpu_neighbour_lists_are_chosen_for_large_sparse_bodies():
    assert choose_backend("cpu", torch.float32, 128, 32, 0.02) == "reference"
    assert choose_backend("cpu", torch.float32, 256, 32, 0.012) == "neighbours"
    assert choose_backend("cpu", torch.float32, 256, 32, 0.1) == "reference"


def test_the_chosen_backend_is_the_one_that_runs(monkeypatch):
    problem = make_problem((1, 1, 6, 8), tree(6))
    chosen = []
    monkeypatch.setattr(
        "body_transformer.ops.body_attention.op.choose_backend", lambda *args: chosen.append(args) or "neighbours"
    )
    body_attention(problem.q, problem.k, problem.v, problem.mask)
    assert chosen == [("cpu", torch.float32, 6, 8, 16 / 36, False, 6)]


def test_for_more_rows_than_the_kernels_can_count_the_reference_is_chosen():
    assert choose_backend("cuda", torch.float16, 16, 64, 0.1, num_rows=2**30) == "tile"
    assert choose_backend("cuda", torch.float16, 16, 64, 0.1, num_rows=2**30 + 16) == "reference"


def test_the_limits_of_a_backend_are_checked_for_the_default_too(monkeypatch):
    monkeypatch.setattr("body_transformer.ops.body_attention.op.choose_backend", lambda *args: "tile")
    q = torch.zeros(1, 1, 129, 1)
    with pytest.raises(ValueError, match="backend 'tile' takes up to 128 nodes; got N = 129"):
        body_attention(q, q, q)


def measured_rows() -> list[tuple[torch.dtype, bool, int, int, float, dict[str, float]]]:
    """Return the times that `benchmarks/attention_crossover.py` printed for Triton's backends on an H200."""
    rows = []
    command_and_table = r"```sh\n(python [^`]*--backends [^`]*)```\n\n```text\n(.*?)```"
    tables = re.findall(command_and_table, MEASURED.read_text(), re.DOTALL)
    for command, table in tables:
        dtype = torch.bfloat16 if "bfloat16" in command else torch.float32
        header, *lines = table.splitlines()
        backends = header.split("density")[1].split()
        for line in lines:
            shape, _, density, *cells = re.match(r"\s*\[(.*)\]\s+(\w+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)", line).groups()
            _, _, num_nodes, head_dim = map(int, shape.split(","))
            times = {name: float(cell.rstrip("*")) for name, cell in zip(backends, cells, strict=True) if cell != "-"}
            rows.append((dtype, "--bias" in command, num_nodes, head_dim, float(density), times))
    return rows


def test_the_chosen_backend_on_cuda_was_the_fastest_or_close_to_it():
    rows = measured_rows()
    assert len(rows) > 200
    for dtype, bias, num_nodes, head_dim, density, times in rows:
        chosen = times[choose_backend("cuda", dtype, num_nodes, head_dim, density, bias)]
        only_self_loops = density * num_nodes < 1.01  # no body has such a mask
        # an eighth slower, but one launch in place of six
        dense_of_32 = dtype == torch.float32 and num_nodes == 32 and density > 0.3
        bound = 1.5 if only_self_loops else 1.16 if dense_of_32 else 1.1
        assert chosen < bound * min(times.values()), (dtype, bias, num_nodes, density, times)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_growing_trees_switch_from_tiles_to_lists_once(dtype):
    chosen = [choose_backend("cuda", dtype, n, 64, (3 * n - 2) / n**2) for n in range(2, 300)]
    first = chosen.index("triton")
    assert set(chosen[:first]) <= {"tile"}
    assert set(chosen[first:]) == {"triton"}
