"""Which ptxas assembles kernels with matrix products."""

from types import SimpleNamespace

import pytest

triton = pytest.importorskip("triton")

from body_transformer.ops import assembler  # noqa: E402

from .compile_for_hopper import unfenced, uninitialised  # noqa: E402


@pytest.fixture
def compiled(monkeypatch):
    """As without the interpreter, with a driver that loads what CUDA 12 and older made."""
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
def test_the_first_that_is_right_and_that_the_driver_loads_is_taken(compiled, monkeypatch, usual, newest, taken):
    tools(monkeypatch, usual, newest)
    assert assembler.sound_ptxas() == taken


def test_where_none_is_right_that_is_said(compiled, monkeypatch):
    tools(monkeypatch, "12.8", "12.8")
    with pytest.raises(RuntimeError, match=r"need ptxas 12.9 .* has 12.8"), assembler.sound_assembler():
        pass


def test_it_is_tritons_within_and_no_longer_after(compiled, monkeypatch):
    before = triton.knobs.nvidia.ptxas.path
    monkeypatch.setattr(assembler, "_driver_version", lambda: 99)
    with assembler.sound_assembler():
        assert triton.knobs.nvidia.ptxas.path == assembler.sound_ptxas()
    assert triton.knobs.nvidia.ptxas.path == before


def test_it_stays_until_the_last_thread_has_left(compiled, monkeypatch):
    monkeypatch.setattr(assembler, "_driver_version", lambda: 99)
    before = triton.knobs.nvidia.ptxas.path
    first, second = assembler.sound_assembler(), assembler.sound_assembler()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert triton.knobs.nvidia.ptxas.path == assembler.sound_ptxas()
    second.__exit__(None, None, None)
    assert triton.knobs.nvidia.ptxas.path == before


def test_it_is_given_back_after_an_error(compiled, monkeypatch):
    monkeypatch.setattr(assembler, "_driver_version", lambda: 99)
    before = triton.knobs.nvidia.ptxas.path
    with pytest.raises(ZeroDivisionError), assembler.sound_assembler():
        raise ZeroDivisionError
    assert triton.knobs.nvidia.ptxas.path == before


# -- what is looked for in compiled code -------------------------------------------------------------------------------


def test_a_register_that_nothing_wrote_is_seen():
    good = "/*0010*/ UMOV UR14, 0x1 ;\n/*0020*/ UIADD3 UR14, UP0, UR14, 0x20, URZ ;"
    assert uninitialised(good) == []
    assert len(uninitialised(good.replace("UMOV UR14", "UMOV UR15"))) == 1
    assert len(uninitialised(good + "\n/*0030*/ HGMMA.64x16x16.F32.BF16 R24, R32, gdesc[UR12], R24 ;")) == 1


def test_a_missing_fence_is_seen():
    assert unfenced("cp.async.wait_group 0; fence.proxy.async.shared::cta; wgmma.mma_async; wgmma.mma_async;") == 0
    assert unfenced("fence.proxy.async.shared::cta; cp.async.wait_group 0; wgmma.mma_async; wgmma.mma_async;") == 2
