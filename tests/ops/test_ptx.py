"""The kernels for small bodies, compiled for a GPU and run without one: results and memory order."""

import json

import pytest
import torch

pytest.importorskip("triton")

from .compiled_code import output_of
from .ptx.block import Block
from .ptx.faults import Faults
from .ptx.global_memory import GlobalMemory
from .ptx.machine import run
from .ptx.program import parse


@pytest.mark.parametrize(
    "case",
    [
        "5 16 --layers 3 --pattern mix --mask tree",
        "21 13 --programs 10 --min-rows 16",  # half-empty programs, unequal shares of the sums
    ],
)
def test_compiled_kernels_match_their_source_and_have_no_races(case):
    found = json.loads(output_of("ptx.check", *case.split()))
    assert max(found["errors"].values()) < 5e-3, found["errors"]
    assert found["inference"]
    assert found["faults"] == []


# -- detection of faults -----------------------------------------------------------------------------------------------

SHARED, GLOBAL = 4096, 2048
"""Bytes: each of 128 threads writes 16; shared memory is larger."""
KERNEL = """
.visible .entry kernel(
    .param .u64 .ptr .global .align 1 kernel_param_0
)
.reqntid 128
{
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 4;
    mov.b32 %r3, global_smem;
    add.s32 %r4, %r3, %r2;  // this thread's place in shared memory
    xor.b32 %r5, %r4, 16;  // its neighbour's
    ld.param.b64 %rd1, [kernel_param_0];
    mul.wide.u32 %rd2, %r1, 16;
    add.s64 %rd3, %rd1, %rd2;  // this thread's place in global memory
    mov.b64 %rd4, 0x4000004000000040;  // a descriptor: 8 rows of 128 bytes from the start of shared memory on
BODY
    ret;
}
"""
STEPS = {
    "write": "st.shared.v4.b32 [%r4], {%r1, %r1, %r1, %r1};",
    "write-neighbours": "st.shared.b32 [%r5], %r1;",
    "write-far": "st.shared.b32 [%r4+4096], %r1;",
    "write-misaligned": "st.shared.b32 [%r4+2], %r1;",
    "write-same": "st.shared.b32 [global_smem], %r3;",
    "write-different": "st.shared.b32 [global_smem], %r1;",
    "read": "ld.shared.b32 %r6, [%r5];",  # the neighbour's value
    "barrier": "bar.sync 0;",
    "copy": "cp.async.cg.shared.global [%r4], [%rd3], 0x10;\ncp.async.commit_group;",
    "wait": "cp.async.wait_group 0;",
    "wait-for-first": "cp.async.wait_group 1;",
    "fence": "fence.proxy.async.shared::cta;",
    "begin": "wgmma.fence.sync.aligned;",
    "multiply": "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
    "{%r10, %r11, %r12, %r13}, {%r1, %r1, %r1, %r1}, %rd4, 0, 1, 1, 0;\nwgmma.commit_group.sync.aligned;",
    "finish": "wgmma.wait_group.sync.aligned 0;",
    "finish-first": "wgmma.wait_group.sync.aligned 1;",
    "use": "add.f32 %r14, %r10, %r10;",
    "use-unwritten": "add.f32 %r14, %r15, %r15;",
    "change": "mov.b32 %r10, 0;",
    "fetch": "ld.global.b32 %r6, [%rd3];",
    "fetch-far": "ld.global.b32 %r6, [%rd3+16];",  # beyond the end for the last thread
    "keep": "st.global.b32 [%rd3], %r1;",
    "jump": "setp.lt.u32 %p1, %r1, 5;\n@%p1 bra $end;",  # some threads only
    "count-bits": "popc.b32 %r6, %r1;",  # not used by any kernel
    "fetch-misaligned": "ld.global.b64 %rd6, [%rd3+4];",
}
MULTIPLIED = "write fence barrier begin multiply"


def faults_of(steps: str, programs: int = 1) -> set[str]:
    """Return the kinds of faults in a kernel of these steps."""
    body = "\n".join(STEPS[step] for step in steps.split())
    program, tensor, faults = parse(KERNEL.replace("BODY", body), SHARED), torch.zeros(GLOBAL // 4), Faults()
    memory = GlobalMemory([tensor], faults)
    for k in range(programs):
        memory.program = k
        run(program, Block(program, memory, {"kernel_param_0": memory.address(tensor)}, (k, 0, 0), faults))
    return faults.kinds


@pytest.mark.parametrize(
    ("fault", "wrong", "right"),
    [
        ("reads too early", "write read", "write barrier read"),
        ("reads too early", "copy barrier read wait", "copy wait barrier read"),
        ("reads too early", "copy wait read", "copy wait barrier read"),
        ("reads too early", "copy wait-for-first barrier read wait", "copy wait barrier read"),
        ("reads uninitialised memory", "read", "write barrier read"),
        ("unordered writes", "write write-neighbours", "write barrier write-neighbours"),
        ("unordered writes", "copy write wait", "copy wait write"),
        ("threads write different values", "write-different", "write-same"),
        (
            "overwrites data that another thread may still read",
            "write barrier read write",
            "write barrier read barrier write",
        ),
        (
            "overwrites data that another thread may still read",
            "write barrier read copy wait",
            "write barrier copy wait",
        ),
        ("a copy without a wait", "copy", "copy wait"),
        ("access beyond shared memory", "write-far", "write"),
        ("misaligned access to shared memory", "write-misaligned", "write"),
    ],
)
def test_a_wrong_order_of_threads_and_copies_is_detected(fault, wrong, right):
    assert (faults_of(wrong), faults_of(right)) == ({fault}, set())


@pytest.mark.parametrize(
    ("fault", "wrong", "right"),
    [
        ("a product reads before a barrier", "write fence begin multiply finish", f"{MULTIPLIED} finish"),
        ("a product reads without a fence", "write barrier begin multiply finish", f"{MULTIPLIED} finish"),
        (
            "a product reads without a fence",
            "copy fence wait barrier begin multiply finish",
            "copy wait fence barrier begin multiply finish",
        ),
        (
            "a product's register is written without a wgmma.fence after",
            "write fence barrier multiply finish",
            f"{MULTIPLIED} finish",
        ),
        (
            "a product's register is written without a wgmma.fence after",
            f"{MULTIPLIED} finish change multiply finish",
            f"{MULTIPLIED} finish change begin multiply finish",
        ),
        (
            "overwrites data that a product may still read",
            f"{MULTIPLIED} barrier copy wait finish",
            f"{MULTIPLIED} finish barrier copy wait",
        ),
        (  # other warps may not have waited yet
            "overwrites data that a product may still read",
            f"{MULTIPLIED} finish copy wait",
            f"{MULTIPLIED} finish barrier copy wait",
        ),
        (
            "overwrites data that a product may still read",
            f"{MULTIPLIED} multiply finish-first barrier write finish",
            f"{MULTIPLIED} multiply finish barrier write",
        ),
        ("a product's result is used before the wait", f"{MULTIPLIED} use finish", f"{MULTIPLIED} finish use"),
        (
            "a register of a product in flight is written",
            f"{MULTIPLIED} change finish",
            f"{MULTIPLIED} finish change",
        ),
        ("a product without a wait", MULTIPLIED, f"{MULTIPLIED} finish"),
    ],
)
def test_a_wrong_order_of_products_is_detected(fault, wrong, right):
    assert (faults_of(wrong), faults_of(right)) == ({fault}, set())


@pytest.mark.parametrize(
    ("fault", "wrong", "right"),
    [
        ("access beyond a tensor", "fetch-far", "fetch"),
        ("misaligned access to global memory", "fetch-misaligned", "fetch"),
        ("an uninitialised register is read", "use-unwritten", "fetch"),
    ],
)
def test_an_invalid_read_is_detected(fault, wrong, right):
    assert (faults_of(wrong), faults_of(right)) == ({fault}, set())


def test_two_programs_that_write_to_one_address_are_detected():
    assert faults_of("keep", programs=1) == set()
    assert faults_of("keep", programs=2) == {"two programs write to one address"}


@pytest.mark.parametrize(
    ("step", "message"), [("count-bits", "unknown instruction: popc.b32"), ("jump", "divergent branch: @%p1")]
)
def test_an_unsupported_instruction_is_named(step, message):
    with pytest.raises(NotImplementedError, match=message):
        faults_of(step)
