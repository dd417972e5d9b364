"""OnnxPolicy: run an exported policy on a robot's computer, with ONNX Runtime on one thread."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..policy_folder import MODEL
from .contract import Contract
from .session import INPUT, OUTPUT, open_session, try_session

TOLERANCE = 1e-5
"""Largest `deviation` between ONNX and PyTorch that is accepted."""


class OnnxPolicy:
    """[O] -> [A], the deterministic action, computed in memory that is allocated beforehand."""

    def __init__(self, source: str | os.PathLike[str], verify: bool = True) -> None:
        """Load an exported policy; refuse an incomplete one and, if `verify`, one that fails its check vectors."""
        self.contract = contract = Contract.read(source)
        # the bytes that were hashed are the bytes that run: the file is read once
        model, folder = contract.model(source), os.fspath(source)
        if verify:
            try_session(model, folder, contract.obs_dim)
        self._session = open_session(model, folder, batch=1)
        _check_ports(self._session, contract)
        self._obs = np.zeros((1, contract.obs_dim), np.float32)
        self._actions = np.zeros((1, contract.action_dim), np.float32)
        self._binding = self._session.io_binding()
        self._binding.bind_input(INPUT, "cpu", 0, np.float32, self._obs.shape, self._obs.ctypes.data)
        self._binding.bind_output(OUTPUT, "cpu", 0, np.float32, self._actions.shape, self._actions.ctypes.data)
        if verify:
            self.verify()

    def __call__(self, obs: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Compute [O] -> [A]; the returned array is overwritten by the next call."""
        if obs.shape != (self._obs.shape[1],):
            raise ValueError(f"obs must be [{self._obs.shape[1]}]; got {list(obs.shape)}")
        self._obs[0] = obs
        self._session.run_with_iobinding(self._binding)
        actions: NDArray[np.float32] = self._actions[0]
        return actions

    def verify(self) -> float:
        """Compare the contract's check vectors and return the largest deviation; refuse one beyond TOLERANCE."""
        checks = self.contract.checks
        found = np.stack([self(np.array(obs, np.float32)).copy() for obs in checks.obs])
        return check_agreement(found, np.array(checks.actions, np.float32))


def deviation(actions: NDArray[np.float32], expected: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the largest difference per row, relative to the largest expected action where that is beyond 1.

    [K, A], [K, A] -> [K]. NaN counts as an infinite difference.
    """
    found, wanted = actions.astype(np.float64), expected.astype(np.float64)
    apart = np.abs(found - wanted).max(1) / np.maximum(1.0, np.abs(wanted).max(1))
    return np.where(np.isfinite(apart), apart, np.inf)


def check_agreement(actions: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Return the largest deviation of [K, A] from [K, A]; refuse one beyond TOLERANCE."""
    off = deviation(actions, expected)
    worst = int(off.argmax())
    if off[worst] > TOLERANCE:
        raise ValueError(
            f"{MODEL} does not give the actions of the policy in PyTorch: check vector {worst} is off by "
            f"{off[worst]:.1e}, allowed is {TOLERANCE:.0e}"
        )
    return float(off[worst])


def _check_ports(session: Any, contract: Contract) -> None:
    for what, ports, name, dim in (
        ("input", session.get_inputs(), INPUT, contract.obs_dim),
        ("output", session.get_outputs(), OUTPUT, contract.action_dim),
    ):
        found = [(port.name, port.type, port.shape) for port in ports]
        if len(found) != 1 or found[0][:2] != (name, "tensor(float)") or found[0][2] not in ([1, dim], ["batch", dim]):
            raise ValueError(f"{MODEL} must have one {what}, {name!r}, float [batch, {dim}]; it has {found}")
