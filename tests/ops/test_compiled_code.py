"""The fused kernels as machine code: errors that the interpreter cannot show."""

import json

import pytest

pytest.importorskip("triton")

from .compiled_code import output_of, overtaken, unfenced, uninitialised

KERNELS = {
    "fused": ["inference", "forward", "backward", "weights", "feed-forward"],
    "hopper": ["inference", "forward", "backward", "weights", "total"],
}
HOPPER, AMPERE = 227 * 1024, 163 * 1024  # bytes of shared memory that a program may use


CASES = {
    "fused": [
        "bf16 16 64 128 2",
        "bf16 16 64 128 2 --own-fences",
        "bf16 50 32 100 2 --own-fences",
        "bf16 13 36 100 3",
        "bf16 40 128 256 4",
        "tf32 16 64 128 2",
        "tf32 50 96 200 4",
    ],
    "hopper": ["bf16 16 64 128 2", "bf16 13 64 128 2", "bf16 1 64 128 2"],
}
OLDER = "bf16 16 64 128 2 --capability 80"


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, str], list[dict]]:
    """Compile every case in one process; return the kernels by language and case."""
    cases = [(which, case) for which in CASES for case in CASES[which]] + [("fused", OLDER)]
    lines = output_of("compile_kernels", *(f"{which} {case}" for which, case in cases)).splitlines()
    kernels = {case: [json.loads(lines.pop(0)) for _ in KERNELS[case[0]]] for case in cases}
    assert lines == []
    for (which, _), found in kernels.items():
        assert [kernel["kernel"] for kernel in found] == KERNELS[which]
    return kernels


@pytest.mark.parametrize("case", CASES["fused"])
def test_a_kernel_fits_and_its_reads_are_synchronised(compiled, case):
    for kernel in compiled["fused", case]:
        assert (kernel["unfenced"], kernel["overtaken"], kernel["uninitialised"]) == (0, [], [])
        assert kernel["shared"] <= HOPPER


def test_the_small_kernels_fit_on_older_gpus(compiled):
    assert all(kernel["shared"] <= AMPERE for kernel in compiled["fused", OLDER])


@pytest.mark.parametrize("case", CASES["hopper"])
def test_a_kernel_for_small_bodies_fits_and_its_reads_are_synchronised(compiled, case):
    for kernel in compiled["hopper", case]:
        assert (kernel["unfenced"], kernel["uninitialised"]) == (0, [])
        assert kernel["shared"] <= HOPPER
        if kernel["kernel"] in ("inference", "forward"):
            assert kernel["exchanges"] == 0  # warps do not exchange values
        assert kernel["stack"] <= 64  # bytes; hundreds if a loop spills registers
        assert kernel["waits"] <= 5  # 10 and more if every product is waited for


# -- detection of faults -----------------------------------------------------------------------------------------------


def test_a_register_that_was_never_written_is_detected():
    good = "/*0010*/ UMOV UR14, 0x1 ;\n/*0020*/ UIADD3 UR14, UP0, UR14, 0x20, URZ ;"
    assert uninitialised(good) == []
    assert len(uninitialised(good.replace("UMOV UR14", "UMOV UR15"))) == 1
    assert len(uninitialised(good + "\n/*0030*/ HGMMA.64x16x16.F32.BF16 R24, R32, gdesc[UR12], R24 ;")) == 1


def test_a_missing_fence_is_detected():
    assert unfenced("cp.async.wait_group 0; fence.proxy.async.shared::cta; wgmma.mma_async; wgmma.mma_async;") == 0
    assert unfenced("fence.proxy.async.shared::cta; cp.async.wait_group 0; wgmma.mma_async; wgmma.mma_async;") == 2


def pipeline(buffers: int, ahead: int, pendings: int | None) -> str:
    """Return a loop that multiplies the data copied `ahead` iterations before, waits, and copies again."""
    wait = "" if pendings is None else f"      %w = ttng.warp_group_dot_wait %d {{pendings = {pendings} : i32}}\n"
    copies = "".join(
        f"    %i{k} = ttg.memdesc_index %x[%c{k}]\n    %t{k} = ttg.async_copy_global_to_local %p, %i{k} mask %m\n"
        for k in range(ahead)
    )
    return (
        f"    %x = ttg.local_alloc : () -> !ttg.memdesc<{buffers}x64x64xbf16, #shared, #smem, mutable>\n{copies}"
        "    %r = scf.for %k = %a to %b step %c  : i32 {\n"
        "      %here = ttg.memdesc_index %x[%k]\n"
        "      %turned = ttg.memdesc_trans %here {order = array<i32: 1, 0>}\n"
        "      %d = ttng.warp_group_dot %q, %turned, %acc {inputPrecision = 0 : i32, isAsync = true}\n"
        f"{wait}"
        "      %next = ttg.memdesc_index %x[%n]\n"
        "      %t = ttg.async_copy_global_to_local %p, %next mask %m\n"
        "    }\n"
    )


@pytest.mark.parametrize(
    ("buffers", "ahead", "pendings", "right"),
    [
        (2, 2, None, False),
        (2, 2, 0, True),
        (3, 2, 1, True),
        (3, 2, None, False),
        (2, 1, 0, True),
        (2, 1, 1, True),
        (2, 1, 2, False),
        (2, 2, 1, False),
    ],
)
def test_a_copy_that_overtakes_a_product_is_detected(buffers, ahead, pendings, right):
    assert (overtaken(pipeline(buffers, ahead, pendings)) == []) == right
