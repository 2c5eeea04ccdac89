"""Models on the rows of a Ray dataset, on as many machines as the Ray cluster has.

>>> import onnx_torch.ray, ray
>>> rows = ray.data.read_parquet("s3://bucket/rows")  # doctest: +SKIP
>>> onnx_torch.ray.predict(rows, "model.onnx", workers=8).write_parquet("s3://bucket/out")  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._batch.cluster import cpu_share, have_room, machines
from ._batch.rows import Columns, RowModel, objects
from ._models.given import Model, serialized
from .errors import InputError
from .prepared_model import prepare

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["Predictor", "cpu_share", "predict"]


class Predictor:
    """A callable class that runs a model on batches of rows, for ``ray.data.Dataset.map_batches`` with numpy batches.

    Ray makes one in each actor, which thereby loads the model once. A batch comes as a dictionary of columns, and goes
    with the outputs as further columns, in place of those that fed the model.

    Args:
        model: a path that every machine finds the model under, its bytes, or a ModelProto.
        device: where to run; by default the GPU that Ray gave to the actor, if it gave one, else the CPU.
        columns: for an input, the column it is fed from, or several scalar columns that make its second dimension. An
            input that is not named is fed from the column of its own name.
        outputs: the outputs wanted (all by default), or, as a dictionary, the columns they are to be called.
        keep: the columns to hand on; by default those that do not feed the model.
        batched: rows go to the model together, along the first dimension of every input and output; otherwise each row
            is a whole input.
        options: further options of `onnx_torch.prepare`.

    >>> from ray.data import ActorPoolStrategy  # doctest: +SKIP
    >>> rows.map_batches(  # doctest: +SKIP
    ...     Predictor,
    ...     fn_constructor_args=("model.onnx",),
    ...     fn_constructor_kwargs={"columns": {"x": "features"}},
    ...     compute=ActorPoolStrategy(size=4),
    ...     num_cpus=0.5,
    ...     batch_size=256,
    ...     batch_format="numpy",
    ... )
    """

    def __init__(
        self,
        model: Model,
        device: str | None = None,
        *,
        columns: Columns | None = None,
        outputs: Sequence[str] | Mapping[str, str] | None = None,
        keep: Sequence[str] | None = None,
        batched: bool = True,
        **options: Any,
    ) -> None:
        self._rep = prepare(model, device or _device(), **options)
        self._keep = keep
        self._columns, self._outputs, self._batched = columns, outputs, batched
        self._available: list[str] | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        if self._available != list(batch):
            self._plan(list(batch))
        made = self._rows({name: batch[name] for name in self._rows.fed})
        kept = {name: batch[name] for name in self._kept}
        return kept | {name: _column(value) for name, value in made.items()}

    def _plan(self, available: list[str]) -> None:
        """Decides which columns feed the model, and which are handed on."""
        self._rows = RowModel(self._rep, available, columns=self._columns, outputs=self._outputs, batched=self._batched)
        self._kept = self._rows.kept(self._keep)
        self._available = available


def _column(value: Any) -> Any:
    """Turns an output into a column as Ray takes it; a map's keys become names."""
    if isinstance(value, np.ndarray):
        return value
    return objects([{str(k): v for k, v in row.items()} if isinstance(row, dict) else row for row in value])


def _device() -> str:
    import ray

    return "CUDA:0" if ray.is_initialized() and ray.get_gpu_ids() else "CPU"


def predict(
    dataset: Dataset,
    model: Model,
    *,
    workers: int | None = None,
    num_cpus: float | None = None,
    num_gpus: float = 0,
    batch_size: int = 256,
    device: str | None = None,
    **options: Any,
) -> Dataset:
    """Runs a model on all rows of a dataset.

    Args:
        dataset: the rows.
        model: the model, as `Predictor` takes it.
        workers: the number of actors, each with the model; by default one for each GPU where ``num_gpus`` is given,
            else one for each CPU.
        num_cpus: the CPUs of an actor, which are also its threads; by default an even share that leaves one CPU to read
            the data.
        num_gpus: the GPUs of an actor; less than 1 is a share of one.
        batch_size: the number of rows that an actor gets at once.
        device: the device, as `Predictor` takes it.
        options: further options of `Predictor`.

    Returns:
        The dataset of the results, which Ray computes when it is read or written.

    Raises:
        InputError: the actors would take all CPUs, and wait for ever.
    """
    import ray
    from ray.data import ActorPoolStrategy

    if not ray.is_initialized():
        ray.init()
    there = machines()
    cpus, gpus = ([machine[kind] for machine in there if machine[kind]] for kind in ("CPU", "GPU"))
    if workers is None:
        workers = int(sum(gpus) / num_gpus if num_gpus else sum(cpus))
    if workers < 1:
        raise InputError(f"there must be a worker at least, not {workers}; the cluster has {sum(gpus):g} GPUs")
    share = cpu_share(cpus, workers)
    if num_cpus is None:
        num_cpus = share
    elif not have_room(cpus, num_cpus, workers) or (num_cpus and workers * num_cpus > sum(n - 1 for n in cpus)):
        raise InputError(
            f"{workers} workers with {num_cpus:g} CPUs each may leave no machine of the cluster a CPU to read data, "
            f"and wait for ever; the machines have {', '.join(map('{:g}'.format, cpus))}; num_cpus={share:g} would do"
        )
    source = os.fspath(model) if isinstance(model, (str, os.PathLike)) else serialized(model)
    return dataset.map_batches(
        Predictor,
        fn_constructor_args=(source, device),
        fn_constructor_kwargs=options,
        compute=ActorPoolStrategy(size=workers),
        num_cpus=num_cpus,
        num_gpus=num_gpus or None,
        batch_size=batch_size,
        batch_format="numpy",
    )
