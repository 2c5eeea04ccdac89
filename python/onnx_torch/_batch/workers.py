"""The workers that run the parts of `onnx_torch.batch`: processes of this machine, or the actors of a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..errors import Error, RunError
from ..prepared_model import prepare
from .arrow_values import to_arrow
from .cluster import cpu_share, machines
from .rows import Columns, RowModel
from .sources import Part, Source

__all__ = ["Job", "Result", "run_here", "run_local", "run_ray"]

# The deaths of processes that end the work: on this machine so many in a row, with no part finished in between; with
# Ray, so many at one part.
DEATHS = 3


@dataclass(frozen=True)
class Job:
    """The things that each worker needs to know."""

    model: str | bytes
    options: dict[str, Any]  # those of `prepare`
    source: Source
    columns: Columns | None
    outputs: Sequence[str] | Mapping[str, str] | None
    kept: Sequence[str]
    batched: bool
    batch_size: int

    def rows(self) -> RowModel:
        rep = prepare(self.model, **self.options)
        available = self.source.columns
        return RowModel(rep, available, columns=self.columns, outputs=self.outputs, batched=self.batched)


@dataclass(frozen=True)
class Result:
    """A part's rows as an Arrow file in memory, or the error that it ended with."""

    part: int
    table: bytes = b""
    error: Error | None = None


class Worker:
    """A worker that runs parts; it loads the model when the first one comes."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._rows: RowModel | None = None

    def __call__(self, part: Part) -> Result:
        try:
            return Result(part.number, _file(self._table(part)))
        except Error as error:
            error.args = (f"{self._job.source.where(part)}: {error}",)
            return Result(part.number, error=error)

    def _table(self, part: Part) -> pa.Table:
        if self._rows is None:
            self._rows = self._job.rows()
        job, rows = self._job, self._rows
        fed, kept = job.source.read(part, rows.fed, job.kept)
        starts = range(0, part.stop - part.start, job.batch_size)
        made = [rows({name: values[s : s + job.batch_size] for name, values in fed.items()}) for s in starts]
        batches = [pa.table({name: to_arrow(name, values) for name, values in batch.items()}) for batch in made]
        outputs = pa.concat_tables(batches)
        for name in outputs.column_names:
            kept = kept.append_column(name, outputs.column(name))
        return kept


def _file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _died(deaths: int, where: str) -> str:
    advice = "Memory may have run out: take fewer workers or a smaller batch."
    return f"a worker process died {deaths} times, {where}. {advice}"


def run_here(job: Job, parts: Sequence[Part], workers: int) -> Iterator[Result]:
    """Runs parts in this process."""
    worker = Worker(job)
    return (worker(part) for part in parts)


# --- Processes of this machine ----------------------------------------------------------------------------------------

_worker: Worker | None = None


def _start(job: Job) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt ends the worker without a word; the parent reports it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _worker = Worker(job)


def _work(part: Part) -> Result:
    assert _worker is not None
    return _worker(part)


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_local(job: Job, parts: Sequence[Part], workers: int) -> Iterator[Result]:
    """Runs parts in processes; the parts that a process which dies was at are run again."""
    waiting = deque(parts)
    deaths = 0
    while waiting:
        running: dict[Future[Result], Part] = {}
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(min(workers, len(waiting)), mp_context=context, initializer=_start, initargs=(job,))
        try:
            while waiting or running:
                while waiting and len(running) < 2 * workers:
                    with _interrupts_held():  # a process starts with them held: it is silent while it imports
                        running[pool.submit(_work, waiting[0])] = waiting[0]
                    waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    del running[future]
                    deaths = 0
                    yield result
        except BrokenProcessPool as error:
            deaths += 1
            waiting.extendleft(sorted(running.values(), key=lambda part: -part.number))
            if deaths == DEATHS:
                died = _died(deaths, f"in or after {job.source.where(waiting[0])}")
                starts = 'A script that starts the work must do so below if __name__ == "__main__":'
                raise RunError(f"{died} {starts}") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


# --- Ray --------------------------------------------------------------------------------------------------------------


class _Tries:
    """The count of the times that each part was begun; it is an actor of its own, where no part can end it."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, part: int) -> int:
        """Counts that the part begins, and tells how often it was begun before."""
        self._begun[part] += 1
        return self._begun[part] - 1


class _RayWorker(Worker):
    """A worker as Ray Data calls it: a batch is one part. A part that `most` workers died of is not begun again."""

    def __init__(self, job: Job, tries: Any, most: int) -> None:
        super().__init__(job)
        self._tries, self._most = tries, most

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:  # type: ignore[override]
        return {"result": [self._try(part) for part in batch["part"]]}

    def _try(self, part: Part) -> Result:
        import ray

        deaths = ray.get(self._tries.begin.remote(part.number))
        if deaths >= self._most:
            return Result(part.number, error=RunError(_died(deaths, f"in {self._job.source.where(part)}")))
        return super().__call__(part)


def run_ray(job: Job, parts: Sequence[Part], workers: int) -> Iterator[Result]:
    """Runs parts in actors; Ray starts those that die anew, and runs their parts again."""
    import ray
    from ray.data import ActorPoolStrategy

    with _ray_cluster(), _quiet_ray_data():
        tries = ray.remote(_Tries).options(num_cpus=0).remote()
        on_gpu = str(job.options["device"]).upper().startswith("CUDA")
        dataset = ray.data.from_items([{"part": part} for part in parts], override_num_blocks=len(parts))
        results = dataset.map_batches(
            _RayWorker,
            fn_constructor_args=(job, tries, DEATHS),
            compute=ActorPoolStrategy(size=min(workers, len(parts))),
            num_cpus=cpu_share([machine["CPU"] for machine in machines()], workers),
            num_gpus=1 if on_gpu else None,
            batch_size=1,
        )
        for row in results.iter_rows():
            yield row["result"]


@contextlib.contextmanager
def _ray_cluster() -> Iterator[None]:
    """Uses the cluster that is connected, or starts one on this machine, which ends with the work."""
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(log_to_driver=False, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _quiet_ray_data() -> Iterator[None]:
    """Turns off Ray's progress bars and statistics, whose rows would be parts."""
    from ray.data import DataContext

    context, logger = DataContext.get_current(), logging.getLogger("ray.data")
    progress, level = context.enable_progress_bars, logger.level
    context.enable_progress_bars = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = progress
        logger.setLevel(level)
