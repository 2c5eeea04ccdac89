"""The self-test, which finds out whether this installation computes what it should on this machine."""

from __future__ import annotations

from collections.abc import Callable

from .. import _C
from .._progress import Progress
from .results import Failure, Part, SelfTest

__all__ = ["Failure", "Part", "SelfTest", "selftest"]

EVERY_WHEN_QUICK = 8  # one of so many of the suite's node cases runs


def selftest(
    device: str = "CPU", *, quick: bool = False, progress: Callable[[str], Progress] | None = None
) -> SelfTest:
    """Finds out whether this installation computes what it should on this machine's CPU or GPU.

    It runs ONNX's own backend suite, from the onnx package that is installed, then operators in several element types,
    patterns that passes make one operator of, quantized models and half precision, each beside ONNX's reference, and
    models on several threads at a time. A bug report should carry the printed result.

    Args:
        device: "CPU" or "CUDA:n".
        quick: run every eighth of the suite's node cases only.
        progress: called with the name of each part before it begins; returns a function that is called with how many
            of its cases are done, and of how many.
    """
    _C.check_device(device)
    from . import _machine, _official, _samples  # importing them makes the suite's cases

    report = progress or (lambda _: lambda done, of: None)
    suite = _official.run_suite(device, EVERY_WHEN_QUICK if quick else 1, report("ONNX's backend suite"))
    parts, ways = [suite], []
    for name, chosen in (
        ("operators", _samples.operator_samples()),
        ("packed operators and chains", _samples.composed_samples(device)),
        ("8 bits and half precision", _samples.narrow_samples()),
    ):
        part, found = _samples.run_samples(name, chosen, device, report(name))
        parts.append(part)
        ways += found if name != "operators" else []
    parts.append(_samples.run_threads(device, report("threads")))
    return SelfTest(device, tuple(_machine.machine_rows(device)), tuple(ways), tuple(parts))
