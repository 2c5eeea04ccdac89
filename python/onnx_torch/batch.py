"""Models on the rows of files: Parquet, .npy or images in, Parquet out; ``onnx-torch batch`` is its command.

>>> import onnx_torch.batch
>>> onnx_torch.batch.predict("model.onnx", "rows.parquet", "out.parquet")  # doctest: +SKIP
Summary(rows=100000, resumed=0, engine='local', workers=8)

The rows are cut into parts. A worker reads a part, runs the model on it and hands back the result, which is written to
a file of its own in a folder beside the output; when all are there, they become the output, in the order of the rows.
The folder makes the work resumable: work that stopped half-way goes on from there when it is started again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError("onnx_torch.batch needs pyarrow: pip install 'onnx_torch[batch]'") from error

from . import _C, __version__
from ._batch.rows import Columns, RowModel
from ._batch.sources import Images, Part, open_source, parts_of
from ._batch.workers import Job, Result, run_here, run_local, run_ray
from ._models.given import Model, serialized
from .errors import InputError
from .prepared_model import prepare

__all__ = ["Images", "Summary", "predict"]

ROW_GROUP_BYTES = 1 << 26  # the size of a row group of the output, before compression

Engine = Literal["auto", "local", "ray"]
Paths = str | os.PathLike[str] | Sequence["str | os.PathLike[str]"]


@dataclass(frozen=True)
class Summary:
    """The account of the work: the rows written, those of them that an earlier attempt had made, and who did it."""

    rows: int
    resumed: int
    engine: str
    workers: int


def predict(
    model: Model,
    inputs: Paths,
    output: str | os.PathLike[str],
    *,
    device: str = "CPU",
    columns: Columns | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    batched: bool = True,
    batch_size: int = 32,
    part_rows: int | None = None,
    engine: Engine = "auto",
    workers: int | None = None,
    threads: int = 0,
    images: Images | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Summary:
    """Runs a model on all rows of files, and writes a Parquet file with a row for each, in their order.

    Args:
        model: a path, the model's bytes, or a ModelProto.
        inputs: files or folders of one kind, told by their suffixes. Parquet: the columns are those of the files.
            ``.npy``: one file for each input, of its name, with the rows along its first dimension; or, for a model of
            one input, a file for each row. Images: one for each row, for a model of one input. A folder's files come in
            the order of their names.
        output: the Parquet file to write. It appears when it is complete.
        device: where to run.
        columns: for an input, the column it is fed from, or several scalar columns that make its second dimension. An
            input that is not named is fed from the column of its own name.
        outputs: the outputs wanted (all by default), or, as a dictionary, the columns they are to be called.
        keep: the columns to write along with the outputs; by default those that do not feed the model. Rows from
            ``.npy`` files have a column ``row``, or ``file`` where each has a file.
        batched: rows go to the model together, along the first dimension of every input and output; otherwise each row
            is a whole input.
        batch_size: how many rows go to the model together.
        part_rows: how many rows are lost at most where a worker dies; by default four batches, or a thousandth of all.
        engine: "ray", "local" (processes of this machine), or "auto": Ray where it is installed.
        workers: how many copies of the model run; by default one for each CPU that the process has, by its affinity
            and its cgroup's quota, or one on a GPU. 0 is this process itself.
        threads: threads of each worker; by default an even share of the CPUs.
        images: how images become arrays.
        overwrite: replace the output if it exists.
        progress: is called with the rows done and the rows in all.
        options: further options of `onnx_torch.prepare`.

    Raises:
        InputError: the rows do not fit the model; the message names them.
    """
    target = Path(output).absolute()
    if target.exists() and not overwrite:
        raise InputError(f"{target} exists already; say that it is to be overwritten, or give another name")
    if batch_size < 1 or (part_rows is not None and part_rows < 1) or (workers or 0) < 0:
        raise InputError("the batch size and the rows of a part must be at least 1, and the workers not below 0")
    if workers is None:
        workers = 1 if device.upper().startswith("CUDA") else _cpus()
    engine = _engine(engine)
    if not workers:
        engine = "local"
    if engine == "local" and workers:
        threads = threads or max(_cpus() // workers, 1)

    path = os.path.abspath(model) if isinstance(model, (str, os.PathLike)) else None
    plan = prepare(path or model, **options)
    paths = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    fed = [(name, kind, shape) for name, kind, shape, has_default in plan.inputs if not has_default]
    source = open_source(paths, fed, images or Images())
    rows = RowModel(plan, source.columns, columns=columns, outputs=outputs, batched=batched)
    kept = rows.kept(keep)
    named = {"device": device, "threads": threads, **options}
    job = Job(path or serialized(model), named, source, columns, outputs, kept, batched, batch_size)  # type: ignore[arg-type]

    count = sum(rows for _, _, rows in source.extents())
    if not count:
        raise InputError(f"there are no rows in {', '.join(map(str, paths))}")
    parts = parts_of(source, part_rows or max(4 * batch_size, -(-count // 1000)))
    with _Folder.locked(target, job, parts) as folder:
        waiting = [part for part in parts if not folder.has(part)]
        resumed = done = count - sum(part.stop - part.start for part in waiting)
        run = run_ray if engine == "ray" else run_local if workers else run_here
        if progress:
            progress(done, count)
        for result in run(job, waiting, workers) if waiting else ():
            folder.store(result)
            done += parts[result.part].stop - parts[result.part].start
            if progress:
                progress(done, count)
        folder.assemble(parts)
    return Summary(count, resumed, engine, workers)


def _engine(engine: Engine) -> Literal["local", "ray"]:
    if engine not in ("auto", "local", "ray"):
        raise InputError(f'the engine must be "auto", "local" or "ray", not {engine!r}')
    has_ray = importlib.util.find_spec("ray") is not None
    if engine == "ray" and not has_ray:
        raise InputError("Ray is not installed: pip install 'onnx_torch[ray]', or take the local engine")
    return "local" if engine == "local" or not has_ray else "ray"


def _cpus(root: str = "/") -> int:
    """Counts the processors that the process may use: by its affinity, or by its cgroup's quota where that is less.

    A quota is rounded up.
    """
    allowed, quota = len(os.sched_getaffinity(0)), _C.processor_quota(root)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


@dataclass(frozen=True)
class _Folder:
    """The folder beside the output that holds the parts that are done."""

    path: Path
    target: Path

    @staticmethod
    @contextlib.contextmanager
    def locked(target: Path, job: Job, parts: Sequence[Part]) -> Iterator[_Folder]:
        """Holds the folder for one process at a time; empties it first if it holds parts of other work."""
        path = target.with_name(f".{target.name}.parts")
        path.mkdir(parents=True, exist_ok=True)
        with open(path / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"another process is writing {target}") from None
            manifest, wanted = path / "manifest.json", _manifest(job, parts)
            if not manifest.exists() or manifest.read_text() != wanted:
                for file in path.iterdir():
                    if file.name != "lock":
                        file.unlink()
                manifest.write_text(wanted)
            yield _Folder(path, target)

    def file(self, part: int) -> Path:
        return self.path / f"{part:08}.arrow"

    def has(self, part: Part) -> bool:
        """Tells whether the part is there, whole."""
        try:
            _, batches = self._read(part.number)
        except (OSError, pa.ArrowInvalid):
            return False
        return bool(sum(batch.num_rows for batch in batches) == part.stop - part.start)

    def store(self, result: Result) -> None:
        if result.error is not None:
            raise result.error
        partial = self.path / "partial"
        partial.write_bytes(result.table)
        partial.rename(self.file(result.part))

    def assemble(self, parts: Sequence[Part]) -> None:
        """Joins the parts to the output, and removes the folder."""
        whole = self.path / "whole.parquet"
        schema, _ = self._read(0)
        with pq.ParquetWriter(whole, schema) as writer:
            group: list[pa.RecordBatch] = []
            size = 0
            for part in parts:
                found, batches = self._read(part.number)
                if found != schema:
                    raise InputError(f"some rows' columns are of other types than the first's: {found}, not {schema}")
                group += batches
                size += sum(batch.nbytes for batch in batches)
                if size > ROW_GROUP_BYTES or part is parts[-1]:
                    writer.write_table(pa.Table.from_batches(group, schema))
                    group, size = [], 0
        with open(whole, "rb") as file:
            os.fsync(file.fileno())
        whole.replace(self.target)
        shutil.rmtree(self.path)

    def _read(self, part: int) -> tuple[pa.Schema, list[pa.RecordBatch]]:
        """Returns a part's schema and rows, mapped into memory."""
        with pa.memory_map(str(self.file(part))) as source:
            reader = pa.ipc.open_file(source)
            return reader.schema, [reader.get_batch(i) for i in range(reader.num_record_batches)]


def _manifest(job: Job, parts: Sequence[Part]) -> str:
    """Writes all that the parts' content follows from, as text."""
    files = [*job.source.files, *([Path(job.model)] if isinstance(job.model, str) else [])]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    options = {name: value for name, value in job.options.items() if name != "threads"}
    model = job.model if isinstance(job.model, str) else hashlib.sha256(job.model).hexdigest()
    form = [job.columns, job.outputs, list(job.kept), job.batched, job.batch_size]
    cut = [asdict(part) for part in parts[:1]], len(parts)
    images = asdict(job.source.options) if hasattr(job.source, "options") else None
    return json.dumps([__version__, model, stats, options, form, cut, images], default=str, indent=1)
