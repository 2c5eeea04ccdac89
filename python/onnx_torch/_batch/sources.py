"""The sources of the rows of `onnx_torch.batch`: Parquet files, .npy files and images, each cut into parts."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError
from .arrow_values import column_values, to_arrow

__all__ = ["Images", "Part", "Source", "open_source"]

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True)
class Images:
    """The way from image files to what a model takes.

    They are decoded, turned as their EXIF data says and resized; unless the model takes integers, divided by 255; then
    the mean is taken off and the rest divided by the deviation; either is one number, or one for each channel.

    Attributes:
        size: height and width; by default those that the model fixes, else each image's own.
        mean: the mean that is taken off.
        std: the deviation that the rest is divided by.
        layout: "NCHW" or "NHWC"; by default where the model's input has 1, 3 or 4 channels.
    """

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str | None = None


@dataclass(frozen=True)
class Part:
    """Consecutive rows of one file or folder, the unit of work; `group` is the row group of a Parquet file."""

    number: int
    file: int
    group: int
    start: int
    stop: int


class Source(Protocol):
    """Rows in an order of their own."""

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""

    @property
    def files(self) -> list[Path]:
        """The files that hold the rows."""

    def extents(self) -> Iterator[tuple[int, int, int]]:
        """Yields (file, group, rows) of each stretch of rows, in order."""

    def read(self, part: Part, fed: Sequence[str], kept: Sequence[str]) -> tuple[dict[str, Any], pa.Table]:
        """Returns the columns that feed the model, as arrays, and a table of those that are kept."""

    def where(self, part: Part) -> str:
        """Returns the part's name in a message."""


def parts_of(source: Source, size: int) -> list[Part]:
    """Cuts the source into parts of at most so many rows."""
    parts: list[Part] = []
    for file, group, rows in source.extents():
        for start in range(0, rows, size):
            parts.append(Part(len(parts), file, group, start, min(start + size, rows)))
    return parts


def open_source(
    paths: Sequence[str | os.PathLike[str]], inputs: Sequence[tuple[str, str, Any]], images: Images
) -> Source:
    """Opens files or folders as a source, by the suffixes of the files; `inputs` are the model's."""
    files = [file for path in paths for file in _files(Path(path))]
    kinds = {_kind(file) for _, file in files}
    if len(kinds) != 1:
        found = ", ".join(sorted(kinds)) or "none"
        raise InputError(f"the input must be files of one kind, Parquet, .npy or images; there are: {found}")
    match kinds.pop():
        case "Parquet":
            return ParquetRows([file for _, file in files])
        case ".npy":
            return _arrays(files, [name for name, *_ in inputs])
        case _:
            if len(inputs) != 1:
                raise InputError(f"images feed a model of one input, and this one has {[name for name, *_ in inputs]}")
            return ImageFiles.of(files, inputs[0], images)


def _files(path: Path) -> list[tuple[str, Path]]:
    """Returns (key, file) of a file, or of all files below a folder, in the order of their names."""
    if not path.exists():
        raise InputError(f"there is no {path}")
    if not path.is_dir():
        return [(path.name, path.absolute())]
    below = [file for file in path.rglob("*") if file.is_file() and not _is_hidden(file.relative_to(path))]
    return sorted((file.relative_to(path).as_posix(), file.absolute()) for file in below if _kind(file) != "other")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _kind(file: Path) -> str:
    suffix = file.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return "Parquet"
    return "images" if suffix in IMAGE_SUFFIXES else suffix if suffix == ".npy" else "other"


# --- Parquet ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetRows:
    """The rows of Parquet files, which must have the same columns."""

    files: list[Path]
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        schemas = [_parquet(file).schema_arrow.remove_metadata() for file in self.files]
        for file, schema in zip(self.files, schemas, strict=True):
            if not schema.equals(schemas[0]):
                raise InputError(f"{file} has other columns or types than {self.files[0]}")
        object.__setattr__(self, "schema", schemas[0])

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def extents(self) -> Iterator[tuple[int, int, int]]:
        for number, file in enumerate(self.files):
            metadata = _parquet(file).metadata
            for group in range(metadata.num_row_groups):
                yield number, group, metadata.row_group(group).num_rows

    def read(self, part: Part, fed: Sequence[str], kept: Sequence[str]) -> tuple[dict[str, Any], pa.Table]:
        table = _row_group(self.files[part.file], part.group, (*dict.fromkeys((*fed, *kept)),))
        table = table.slice(part.start, part.stop - part.start)
        return {name: column_values(name, table.column(name)) for name in fed}, table.select(list(kept))

    def where(self, part: Part) -> str:
        return f"rows {part.start} to {part.stop - 1} of row group {part.group} of {self.files[part.file]}"


def _parquet(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet: {error}") from error


@functools.lru_cache(maxsize=1)  # one row group may be cut into several parts
def _row_group(file: Path, group: int, columns: tuple[str, ...]) -> pa.Table:
    try:
        return pq.ParquetFile(file).read_row_group(group, columns=list(columns)).select(list(columns))
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet: {error}") from error


# --- .npy -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrayRows:
    """Arrays whose first dimension is the rows, by their names; the column "row" numbers them."""

    arrays: Mapping[str, Path]

    @property
    def columns(self) -> list[str]:
        return ["row", *(name for name in self.arrays if name != "row")]

    @property
    def files(self) -> list[Path]:
        return list(self.arrays.values())

    def extents(self) -> Iterator[tuple[int, int, int]]:
        rows = {name: len(np.atleast_1d(_load(file))) for name, file in self.arrays.items()}
        if len(set(rows.values())) > 1:
            raise InputError(f"the arrays have different numbers of rows: {rows}")
        yield 0, 0, next(iter(rows.values()))

    def read(self, part: Part, fed: Sequence[str], kept: Sequence[str]) -> tuple[dict[str, Any], pa.Table]:
        rows = slice(part.start, part.stop)
        values = {name: np.asarray(_load(self.arrays[name])[rows]) for name in {*fed, *kept} if name != "row"}
        values["row"] = np.arange(part.start, part.stop)
        return {name: values[name] for name in fed}, pa.table({name: to_arrow(name, values[name]) for name in kept})

    def where(self, part: Part) -> str:
        return f"rows {part.start} to {part.stop - 1} of {', '.join(map(str, self.files))}"


@dataclass(frozen=True)
class FileRows:
    """A file for each row; the column "file" names it."""

    keys: list[str]
    files: list[Path]
    input: str

    @property
    def columns(self) -> list[str]:
        return ["file", self.input]

    def extents(self) -> Iterator[tuple[int, int, int]]:
        yield 0, 0, len(self.files)

    def read(self, part: Part, fed: Sequence[str], kept: Sequence[str]) -> tuple[dict[str, Any], pa.Table]:
        rows = slice(part.start, part.stop)
        values = {"file": self.keys[rows], self.input: [self.load(file) for file in self.files[rows]]}
        return {name: values[name] for name in fed}, pa.table({name: to_arrow(name, values[name]) for name in kept})

    def load(self, file: Path) -> np.ndarray:
        return np.asarray(_load(file))

    def where(self, part: Part) -> str:
        return f"{self.files[part.start]} to {self.files[part.stop - 1].name}"


def _arrays(files: Sequence[tuple[str, Path]], inputs: Sequence[str]) -> Source:
    """Opens .npy files as a source: a file for each input, or, for a model of one input, a file for each row."""
    stems = {file.stem: file for _, file in files}
    if set(inputs) & set(stems):
        return ArrayRows(stems)
    if len(inputs) != 1:
        raise InputError(f"the .npy files must have the names of the model's inputs: {', '.join(inputs)}")
    if len(files) == 1:
        return ArrayRows({inputs[0]: files[0][1]})
    return FileRows([key for key, _ in files], [file for _, file in files], inputs[0])


def _load(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read as .npy: {error}") from error


# --- Images -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageFiles(FileRows):
    """An image for each row."""

    options: Images
    channels: int
    is_integer: bool
    channels_first: bool

    @staticmethod
    def of(files: Sequence[tuple[str, Path]], model_input: tuple[str, str, Any], options: Images) -> ImageFiles:
        name, type_string, shape = model_input
        dims = (shape or [])[-3:]
        first = _channels_first(name, dims, options.layout)
        channels = dims[0 if first else 2] if len(dims) == 3 else 3
        size = dims[1:] if first else dims[:2]
        if options.size is None and len(size) == 2 and all(isinstance(n, int) for n in size):
            options = Images((size[0], size[1]), options.mean, options.std, options.layout)
        channels = channels if isinstance(channels, int) else 3
        for option, numbers in (("mean", options.mean), ("std", options.std)):
            if len(numbers) not in (1, channels):
                raise InputError(f"the {option} must be one number, or one for each of {channels} channels")
        is_integer = "int" in type_string
        return ImageFiles([k for k, _ in files], [f for _, f in files], name, options, channels, is_integer, first)

    def load(self, file: Path) -> np.ndarray:
        from PIL import Image, ImageOps

        try:
            with Image.open(file) as opened:
                image = ImageOps.exif_transpose(opened).convert({1: "L", 3: "RGB", 4: "RGBA"}[self.channels])
        except (OSError, Image.DecompressionBombError) as error:
            raise InputError(f"{file} cannot be read as an image: {error}") from error
        if self.options.size is not None and image.size != self.options.size[::-1]:
            image = image.resize(self.options.size[::-1], Image.Resampling.BILINEAR)
        values = np.asarray(image).reshape(image.height, image.width, self.channels)
        if not self.is_integer:
            mean, std = (np.asarray(given, np.float32) for given in (self.options.mean, self.options.std))
            values = (values.astype(np.float32) / 255 - mean) / std
        return np.ascontiguousarray(values.transpose(2, 0, 1)) if self.channels_first else values


def _channels_first(name: str, dims: Sequence[Any], layout: str | None) -> bool:
    if layout not in (None, "NCHW", "NHWC"):
        raise InputError(f'the layout must be "NCHW" or "NHWC", not {layout!r}')
    if dims and len(dims) != 3:
        raise InputError(f"the input {name!r} has not the three dimensions of an image: {list(dims)}")
    position = {"NCHW": 0, "NHWC": 2}
    if layout is None:
        layout = next((name for name, i in position.items() if dims and dims[i] in (1, 3, 4)), None)
    if layout is None:
        raise InputError(f"where the input {name!r} has its channels is not known: say the layout, NCHW or NHWC")
    if dims and isinstance(dims[position[layout]], int) and dims[position[layout]] not in (1, 3, 4):
        raise InputError(f"the input {name!r} has {dims[position[layout]]} channels, and images have 1, 3 or 4")
    return layout == "NCHW"
