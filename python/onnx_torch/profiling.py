"""The time that each ONNX node of a model takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._models.files import read_model
from ._models.fixed_shapes import FixedShapes
from ._models.given import External, Model
from ._models.random_feeds import random_inputs
from ._models.trust import trust_of
from ._progress import Progress
from ._running.measuring import NodeProfile, OperatorProfile, Profile, measure
from .prepared_model import prepare

__all__ = ["NodeProfile", "OperatorProfile", "Profile", "profile"]


def profile(
    model: Model,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    device: str = "CPU",
    *,
    runs: int = 10,
    warm_up: int = 2,
    seed: int = 0,
    base_dir: str | os.PathLike[str] | None = None,
    external: External | None = None,
    precision: str = "float32",
    tf32: bool = False,
    optimize: bool = True,
    disabled_passes: Iterable[str] = (),
    threads: int = 0,
    shapes: FixedShapes | None = None,
    limits: Mapping[str, float] | None = None,
    allow_aten: str = "checked",
    links: str = "follow",
    progress: Progress | None = None,
) -> Profile:
    """Measures how long each node of a model takes; ``PreparedModel.profile`` does it for one that is prepared already.

    Args:
        model: a ModelProto, its serialized bytes, or a path.
        inputs: the inputs by name, or a list; those that are missing are random.
        device: see `prepare`; likewise ``base_dir``, ``external``, ``precision``, ``tf32``, ``optimize``,
            ``disabled_passes``, ``threads``, ``shapes``, ``limits``, ``allow_aten`` and ``links``.
        runs: the number of runs to measure.
        warm_up: the number of runs before those.
        seed: the seed of random inputs.
        progress: called with the number of runs done and of all.

    >>> from onnx import parser
    >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ...     net (float[2] x) => (float[2] z) { y = Relu(x)  z = Neg(y) }''')
    >>> [node.op_type for node in profile(model).nodes]
    ['Relu', 'Neg']
    """
    rep = prepare(
        model,
        device,
        base_dir=base_dir,
        external=external,
        precision=precision,
        tf32=tf32,
        optimize=optimize,
        disabled_passes=disabled_passes,
        threads=threads,
        shapes=shapes,
        **trust_of(limits, allow_aten, links),
    )
    feeds = random_inputs(read_model(model), seed, shapes, inputs)
    return measure(rep._prepared, rep.run, feeds, runs, warm_up, progress)
