"""The choice of the ptxas that assembles kernels with matrix products."""

import warnings
from types import SimpleNamespace

import pytest
import torch

triton = pytest.importorskip("triton")

from body_transformer.ops import assembler  # noqa: E402
from body_transformer.ops.encoder_stack import choose  # noqa: E402


@pytest.fixture
def compiled(monkeypatch):
    """Disable the interpreter, and simulate a driver for CUDA 12."""
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(assembler, "_driver_version", lambda: 12)
    assembler.sound_ptxas.cache_clear()
    yield
    assembler.sound_ptxas.cache_clear()


def tools(monkeypatch, usual: str, newest: str) -> None:
    knobs = SimpleNamespace(
        ptxas=SimpleNamespace(path="usual", version=usual),
        ptxas_blackwell=SimpleNamespace(path="newest", version=newest),
    )
    monkeypatch.setattr(triton.knobs, "nvidia", knobs)


@pytest.mark.parametrize(
    ("usual", "newest", "taken"),
    [("12.8", "12.9", "newest"), ("12.10", "13.1", "usual"), ("12.8", "13.1", None), ("11.8", "12.8", None)],
)
def test_the_first_correct_ptxas_that_the_driver_supports_is_chosen(compiled, monkeypatch, usual, newest, taken):
    tools(monkeypatch, usual, newest)
    assert assembler.sound_ptxas() == taken


def test_a_ptxas_that_is_not_installed_is_skipped(compiled, monkeypatch):
    class Knobs:
        ptxas_blackwell = SimpleNamespace(path="newest", version="12.9")

        @property
        def ptxas(self):
            raise RuntimeError("Cannot find ptxas")

    monkeypatch.setattr(triton.knobs, "nvidia", Knobs())
    assert assembler.sound_ptxas() == "newest"


def test_a_missing_correct_ptxas_is_an_error_only_if_it_is_required(compiled, monkeypatch):
    tools(monkeypatch, "12.8", "12.8")
    with pytest.raises(RuntimeError, match=r"need a ptxas of CUDA 12.9"), assembler.sound_assembler():
        pass
    with assembler.sound_assembler(required=False):
        assert assembler.sound_options() == {}


def test_triton_uses_the_correct_ptxas_only_inside_the_context(compiled, monkeypatch):
    before = triton.knobs.nvidia.ptxas.path
    monkeypatch.setattr(assembler, "_driver_version", lambda: 99)
    with assembler.sound_assembler():
        assert triton.knobs.nvidia.ptxas.path == assembler.sound_ptxas()
    assert triton.knobs.nvidia.ptxas.path == before


def test_the_setting_lasts_until_the_last_context_ends(compiled, monkeypatch):
    monkeypatch.setattr(assembler, "_driver_version", lambda: 99)
    before = triton.knobs.nvidia.ptxas.path
    first, second = assembler.sound_assembler(), assembler.sound_assembler()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert triton.knobs.nvidia.ptxas.path == assembler.sound_ptxas()
    second.__exit__(None, None, None)
    assert triton.knobs.nvidia.ptxas.path == before


def test_the_setting_is_restored_after_an_error(compiled, monkeypatch):
    monkeypatch.setattr(assembler, "_driver_version", lambda: 99)
    before = triton.knobs.nvidia.ptxas.path
    with pytest.raises(ZeroDivisionError), assembler.sound_assembler():
        raise ZeroDivisionError
    assert triton.knobs.nvidia.ptxas.path == before


def test_a_missing_ptxas_causes_one_warning(compiled, monkeypatch):
    tools(monkeypatch, "12.8", "12.8")
    choose._warn.cache_clear()
    with pytest.warns(UserWarning, match="TRITON_PTXAS_PATH"):
        assert not choose.has_sound_ptxas()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not choose.has_sound_ptxas()


@pytest.mark.parametrize(("width", "heads", "taken"), [(64, 2, "reference"), (320, 5, "wide")])
def test_the_ptxas_is_looked_up_only_for_the_fused_kernels(monkeypatch, width, heads, taken):
    asked = []
    monkeypatch.setattr(choose, "has_sound_ptxas", lambda: bool(asked.append(width)))
    monkeypatch.setattr(choose, "shared_memory_kib", lambda device: 227)
    x = SimpleNamespace(is_cuda=True, dtype=torch.float32, shape=(8, 16, width), device="cuda")
    assert choose.automatic_backend(x, heads, 10, "bf16") == taken
    assert asked == ([64] if width == 64 else [])


def test_torch_compile_treats_the_result_as_a_constant():
    compiled = torch.compile(lambda x: x + choose.has_sound_ptxas(), fullgraph=True, backend="eager")
    assert compiled(torch.zeros(1)) == choose.has_sound_ptxas()
