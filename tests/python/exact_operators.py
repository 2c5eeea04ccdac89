"""Operators that ONNX's reference has wrong, or with fewer digits, as they should be."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_loop
from scipy import special

from onnx_torch.self_test._samples import Erf, HardSwish

__all__ = ["EXACT"]


class Gelu(OpRun):
    """Gelu with all digits; the reference's has the error function in float32."""

    def _run(self, x: np.ndarray, approximate: str) -> tuple[np.ndarray]:
        if approximate == "tanh":
            return (x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),)
        return (x / 2 * (1 + special.erf(x / np.sqrt(2))),)


class GlobalMaxPool(OpRun):
    """GlobalMaxPool of any dimensions; the reference's gives other sizes for all but images of two dimensions."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Loop(op_loop.Loop):
    """Loop as it should be; the reference's takes an absent condition for false, and joins what it is to stack."""

    def _run(
        self,
        count: np.ndarray | None,
        going: np.ndarray | None,
        *carried: np.ndarray,
        context=None,
        attributes=None,
        **_,
    ) -> tuple[np.ndarray, ...]:
        collected: list[list[np.ndarray]] = [[] for _ in range(self.K)]
        number, going = 0, np.asarray(True) if going is None else going
        while going and (count is None or number < count):
            given = zip(self.body.input_names, (np.asarray(number), going, *carried), strict=True)
            going, *results = self._run_body({**(context or {}), **dict(given)}, attributes=attributes)
            carried = tuple(results[: self.N])
            for rows, row in zip(collected, results[self.N :], strict=True):
                rows.append(row)
            number += 1
        return (*carried, *map(np.stack, collected))


class LRN(OpRun):
    """LRN of all channels; the reference's leaves some out, where an image has more of them than there are images."""

    def _run(self, x: np.ndarray, alpha: float, beta: float, bias: float, size: int) -> tuple[np.ndarray]:
        before, behind = (size - 1) // 2, size // 2
        around = np.pad(x * x, [(0, 0), (before, behind)] + [(0, 0)] * (x.ndim - 2))
        sums = sum(around[:, i : i + x.shape[1]] for i in range(size))
        return (x / (float(bias) + float(alpha) / size * sums) ** float(beta),)


EXACT = [Erf, Gelu, GlobalMaxPool, HardSwish, LRN, Loop]
