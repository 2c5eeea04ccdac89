"""The logger of the package, ``logging.getLogger("onnx_torch")``.

INFO tells which model was prepared and how long that took, DEBUG also which operators it has, and WARNING what the
native code finds odd in a run, such as a picture that cannot be decoded. Nothing is written to stderr but by logging
itself, which shows warnings there while a program has not set it up.

>>> import logging
>>> logging.getLogger("onnx_torch").setLevel(logging.ERROR)  # no warnings either
>>> logging.getLogger("onnx_torch").setLevel(logging.NOTSET)
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

__all__ = ["logger"]

logger = logging.getLogger("onnx_torch")


def operator_counts(operators: Iterable[str]) -> str:
    """Lists operators by how often they occur.

    >>> operator_counts(["Conv", "Relu", "Conv"])
    'Conv ×2, Relu'
    """
    counts = Counter(operators).most_common()
    return ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts)
