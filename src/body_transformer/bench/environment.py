"""Where and when a benchmark ran: without it a time means nothing."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from .. import __version__

PACKAGES = ("torch", "triton", "numpy", "onnxruntime")


def describe(device: str, command: str) -> dict[str, str]:
    """Device, versions, date and command, in the order in which they are shown."""
    described = {
        "device": device_name(device),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "body_transformer": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }
    if device == "cuda":
        described["cuda"] = str(torch.version.cuda)
    else:
        described["default threads"] = str(torch.get_num_threads())
        if hasattr(os, "getloadavg"):  # not on Windows
            described["load average"] = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return described


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else _cpu_name()


def _cpu_name() -> str:
    """The processor's own name where the system tells it, else its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
