"""PyTorch's settings of TF32."""

import subprocess
import sys

import pytest
import torch

from body_transformer.ops.dispatch import tf32_is_allowed

OLD, NEW = "torch.backends.cuda.matmul.allow_tf32 = {}", "torch.backends.cuda.matmul.fp32_precision = {}"


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        (OLD.format(True), True),
        (OLD.format(False), False),
        (NEW.format("'tf32'"), True),
        (NEW.format("'ieee'"), False),
        ("torch.set_float32_matmul_precision('high')", True),
        ("pass", False),
    ],
)
def test_either_setting_of_pytorch_allows_tf32(setting, allowed):
    code = (
        f"import torch; from body_transformer.ops.dispatch import tf32_is_allowed; {setting}; print(tf32_is_allowed())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # settings are process-wide
    assert run.stdout.strip() == str(allowed)


def test_torch_compile_supports_it_and_recompiles_after_a_change():
    compiled = torch.compile(lambda x: x + tf32_is_allowed(), fullgraph=True, backend="eager")
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (False, True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            assert compiled(torch.zeros(1)).item() == allowed
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
