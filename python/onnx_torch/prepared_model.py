"""A model that is prepared for one device. Nothing here imports onnx, which takes as long as to load a small model."""

from __future__ import annotations

import functools
import logging
import os
import time
import warnings
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _C
from ._models.fixed_shapes import FixedShapes, fixed_sizes
from ._models.given import External, Model, serialized
from ._running.values import OutputKind, as_torch, kind_of, targets, write
from .errors import InputError
from .log import logger, operator_counts

if TYPE_CHECKING:
    import onnx
    from onnx.backend.base import Device
    from typing_extensions import Self

    from ._running.measuring import Profile


@dataclass(frozen=True)
class ModelInfo:
    """The metadata that a model holds about itself, under ONNX's names; what it does not hold is empty or 0."""

    ir_version: int
    opset_imports: dict[str, int]
    producer_name: str
    producer_version: str
    domain: str
    model_version: int
    doc_string: str
    graph_name: str
    graph_doc_string: str


@dataclass(frozen=True)
class NodePlacement:
    """The place where an ONNX node runs."""

    op_type: str
    name: str
    domain: str
    output: str  #: the name of its first output
    where: str  #: "CUDA:0" or "CPU"; empty where nothing is left of the node
    why: str  #: the work that the host does for it, or the reason why nothing is left of it


class PreparedModel:
    """A model prepared for one device. It may run on several threads at the same time.

    Attributes:
        inputs: ``(name, type, shape, has_default)`` of each input.
        outputs: ``(name, type)`` of each output.
        metadata: the model's ``metadata_props``.
        model_info: its versions, producer and documentation.
        quantization_annotations: for each tensor that has them, the names of the tensors that hold its quantization
            parameters, such as ``SCALE_TENSOR``.
        options: the options that the model was prepared with.

    It pickles, by its source (the path, or else the whole model) and its options, and is prepared anew where loaded.
    """

    inputs: list[tuple[str, str, list[int | str | None] | None, bool]]
    outputs: list[tuple[str, str]]
    metadata: dict[str, str]
    model_info: ModelInfo
    quantization_annotations: dict[str, dict[str, str]]
    options: dict[str, Any]

    def __init__(
        self,
        prepared: _C.PreparedModel,
        options: dict[str, Any],
        path: str | None = None,
        saved: str | None = None,
        external: External | None = None,
    ) -> None:
        self._prepared = prepared
        self._path = path
        self._saved = saved  # the file that `onnx_torch.load` read
        self._external = external
        self.options = options
        self.inputs = prepared.inputs
        self.outputs = prepared.outputs
        self.metadata = prepared.metadata
        self.model_info = ModelInfo(**prepared.model_info)
        self.quantization_annotations = prepared.quantization_annotations
        self._input_names = [name for name, *_ in self.inputs]
        self._output_names = tuple(name for name, _ in self.outputs)
        maps = [name for name, type_, *_ in self.inputs if type_.startswith("map(")]
        self._only_map = maps[0] if maps and len(self.inputs) == 1 else None

    @classmethod
    def prepare(
        cls,
        model: Model,
        device: str | Device = "CPU",
        *,
        base_dir: str | os.PathLike[str] | None = None,
        external: External | None = None,
        precision: str = "float32",
        tf32: bool = False,
        cuda_graphs: bool | None = None,
        optimize: bool = True,
        disabled_passes: Iterable[str] = (),
        threads: int = 0,
        shapes: FixedShapes | None = None,
        limits: Mapping[str, float] | None = None,
        allow_aten: str = "checked",
        links: str = "follow",
        map_external: bool = False,
        plans: int = 8,
        last_only: Iterable[str] = (),
        **kwargs: Any,
    ) -> Self:
        """Translates a model for a device.

        Args:
            model: a ModelProto, its serialized bytes, or a path.
            device: "CPU" or "CUDA:n".
            base_dir: the directory of the model's external data; for a path, the directory of the file by default.
            external: external data that is in memory: buffers (bytes, memoryview, mmap, numpy arrays) by the names that
                the model has for its files, such as ``{"weights.bin": buffer}``; or a function that gives a buffer,
                ``external(name, offset, length)``. What is not among them, or for which the function gives None, lies
                in files. Buffers are not copied, and must stay as they are while the model lives. The function is
                called while the model is prepared, again for a `replica` and where a run asks for other outputs, and
                from any thread.
            precision: the type that float32 convolutions and products with weights are computed in: "float32",
                "bfloat16" or "float16". All else, and their results, stay float32.
            tf32: whether convolutions, products and recurrent layers of float32 may be computed in TF32 on CUDA, which
                has 10 bits of mantissa instead of 23; whatever ``torch.backends`` says.
            cuda_graphs: whether runs on CUDA are recorded, once for each set of the inputs' sizes and types, and
                launched as a whole after that (docs/cuda.md). None: where the model lets them be, from the third run
                of a set on. True: from the first, and an `UnsupportedError` where a node has the host wait.
            optimize: whether `passes` may rewrite the graph; without them, the model's operators run one by one.
            disabled_passes: the names of passes to leave out.
            threads: the number of threads of a run on the CPU, whatever the process uses; 0: torch's number.
            shapes: sizes for open dimensions of the inputs, which are then fixed: by symbols, such as ``{"batch": 8}``,
                or as shapes of inputs, such as ``{"x": [8, 3, None]}``, in which None leaves a dimension open.
            limits: the most that a run may take, such as ``{"seconds": 10, "memory": 2e9}``: the time, and the bytes
                of tensors besides weights and inputs; also ``max_iterations`` of a loop. Others are for preparing the
                model: ``prepare_seconds``, ``nodes`` once functions are inlined, ``constant_bytes`` of folded values.
                What would take more is stopped, with a `StoppedError`. For models that nobody trusts; docs/security.md
                says what it keeps them from.
            links: "refuse" refuses files of external data that are symbolic links, or have other names (hard links).
                With "follow" they are read where they lie below the model's folder.
            map_external: whether files of external data are mapped, which loads weights that stay as they are in no
                time, and shares them with other processes. They must not be cut while the model lives: that would end
                the process.
            plans: for how many sizes of the inputs, the latest ones, a run on the CPU is kept as a plan: a list of
                calls that the next run of these sizes goes through (docs/architecture.md); 0: none.
            last_only: names of outputs of which a run gives the last element along dimension 1 alone, and computes no
                more than it needs for that: of a decoder's logits, ``[batch, count, vocabulary]``, those of the last
                token. A name that is no output's says nothing.
            allow_aten: the operators that ATen nodes may call: "checked", those that check their arguments, or "all",
                for a model that you trust as you trust a program (docs/security.md).
        """
        if kwargs:
            raise TypeError(f"prepare() takes no option {', '.join(map(repr, kwargs))}")
        directory = os.fspath(base_dir or "")
        named = _native(
            {
                "device": device,
                "precision": precision,
                "tf32": tf32,
                "cuda_graphs": cuda_graphs,
                "optimize": optimize,
                "disabled_passes": disabled_passes,
                "threads": threads,
                "shapes": shapes,
                "limits": limits,
                "allow_aten": allow_aten,
                "links": links,
                "map_external": map_external,
                "plans": plans,
                "last_only": last_only,
            }
        )
        options = _C.Options(**named)
        path = None
        start = time.perf_counter()
        if isinstance(model, (str, os.PathLike)):
            path = os.path.abspath(model)
            prepared = _C.PreparedModel.from_path(path, directory, options, external)
        else:
            prepared = _C.PreparedModel.from_bytes(serialized(model), directory, options, external=external)
        rep = cls(prepared, {**named, "base_dir": base_dir}, path, external=external)
        _log_prepared(rep, time.perf_counter() - start)
        if rep.model_info.ir_version > _C.NEWEST_IR_VERSION:
            warnings.warn(
                f"the model's IR version, {rep.model_info.ir_version}, is newer than the newest known one, "
                f"{_C.NEWEST_IR_VERSION}; what it adds is ignored",
                stacklevel=2,
            )
        return rep

    @classmethod
    def load(cls, file: str | os.PathLike[str], *, allow_aten: str = "checked") -> Self:
        """Loads a model that `save` wrote, for the device and with the options that it was prepared with.

        Weights are mapped from the file, which must not change while the model lives. Where another release wrote it,
        or a CPU of another kind, they are laid out anew.

        Args:
            file: the file that `save` wrote.
            allow_aten: see `prepare`; the file itself does not tell, as it is not known who wrote it.
        """
        from ._running import saving

        path = os.path.abspath(file)
        prepared, options = saving.load(path, allow_aten)
        return cls(prepared, options, saved=path)

    def __repr__(self) -> str:
        outputs = zip(self.outputs, self._prepared.output_shapes, strict=True)
        options = (f"{name}={value!r}" for name, value in self.options.items() if name != "device")
        return "\n    ".join(
            [
                f"<{type(self).__name__} of {_origin(self)}",
                f"device: {self.options['device']}",
                *(f"input: {_described(*input_)}" for input_ in self.inputs),
                *(f"output: {_described(*output, shape)}" for output, shape in outputs),
                f"options: {', '.join(options)}>",
            ]
        )

    def run(
        self,
        inputs: Any = None,
        *,
        output_names: Sequence[str] | None = None,
        output: OutputKind | None = None,
        out: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs the model.

        Args:
            inputs: a list in the order of the model's inputs, a dictionary by name, or one bare array; or a map, where
                that is the model's one input. An array is numpy's, a torch tensor on any device, or anything else that
                speaks DLPack; none is copied where its layout allows. Inputs that have an initializer may be left out;
                ``None`` is an absent optional.
            output_names: the outputs wanted, in the order wanted; only what they need is computed.
            output: "numpy", "torch" (on the model's device) or "dlpack" (torch tensors, which any library that speaks
                DLPack takes). By default torch tensors come out where one goes in, else numpy arrays.
            out: the caller's own arrays or tensors to write outputs into, as a dictionary by name, or as a list with
                ``None`` for outputs that are to get memory of their own. A cache is written in place where its past and
                its present begin at one place (docs/python_api.md).

        Returns:
            A named tuple of arrays (lists for sequences, dictionaries for maps, ``None`` for an absent optional), which
            also takes an output's name as an index. Strings come in numpy arrays always.
        """
        if kwargs:
            raise TypeError(f"run() takes no option {', '.join(map(repr, kwargs))}")
        names = tuple(output_names) if output_names else self._output_names
        into = None if out is None else targets(names, out)
        kind = output or (None if into is None else kind_of(into))
        values = self._values(inputs, names if output_names else (), kind, out=into)
        if into is not None:
            values = [write(name, value, target) for name, value, target in zip(names, values, into, strict=True)]
        return named_outputs(names, values)

    def _values(
        self,
        inputs: Any,
        output_names: Sequence[str] = (),
        output: OutputKind | None = None,
        stop: _C.StopFlag | None = None,
        out: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Runs the model; returns the outputs as a list, in which those that `out` holds already are its own."""
        feeds = inputs if type(inputs) is dict and self._only_map is None else self._by_name(inputs)
        return self._prepared.run(feeds, output_names, as_torch(output), stop, out)

    def intermediates(self, inputs: Any = None, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Returns inner values of a run, by their ONNX names; all of the main graph's by default.

        Values inside the bodies of If, Loop, Scan and functions have no single value in a run, and are not among them.
        """
        wanted = self._prepared.value_names if names is None else list(names)
        return dict(zip(wanted, self.run(inputs, output_names=wanted), strict=True)) if wanted else {}

    def graph(self) -> str:
        """Returns the TorchScript graph as text; a comment at a line's end has its ONNX node's name and number."""
        text: str = self._prepared.graph_text()
        return text

    def plans(self) -> list[str]:
        """Returns the plans of runs whose inputs have had the same sizes before, as text: a step on each line.

        The latest plan comes first. `plan` is a kernel that is called with addresses alone, `into` an operator of ATen
        that gives its result into memory that is there, `call` one that allocates it, and `part` what is left to
        TorchScript's interpreter.
        """
        return list(self._prepared.plan_texts())

    def graphs(self) -> dict[str, str]:
        """Returns the graph's text after each step of preparing it, by its name: "translate", "place", and `passes`."""
        return {name: graph for name, graph, _ in self._prepared.steps}

    def placement(self) -> list[NodePlacement]:
        """Tells where each ONNX node runs, and what of it the host does, in subgraphs and functions, too.

        >>> from onnx import parser
        >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
        ...     net (float[2] x) => (float[2] z) <float[1] w = {2}> { y = Neg(w)  z = Mul(x, y) }''')
        >>> for node in prepare(model).placement():
        ...     print(node.op_type, node.where, node.why)
        Neg  folded: nothing is left of it in a run
        Mul CPU
        """
        return [
            NodePlacement(op_type, name, domain, output, where, why)
            for (op_type, name, domain, _, output, _), (where, why) in zip(
                self._prepared.nodes, self._prepared.placement, strict=True
            )
        ]

    def profile(self, inputs: Any = None, *, runs: int = 10, warm_up: int = 2) -> Profile:
        """Measures how long each ONNX node takes, over some runs.

        The model is translated once more, with a clock around each node; on a CUDA device each node is waited for.
        """
        from ._running.measuring import measure

        return measure(self._prepared, self.run, self._by_name(inputs), runs, warm_up)

    def replica(self, device: str | Device | None = None, **options: Any) -> Self:
        """Prepares the same model once more, with other options of `prepare`, or for another device.

        The model is not read again. On one CUDA device both share the weights that passes leave as they are, and so do
        the graphs that `run` makes for other outputs.

        >>> from onnx import parser
        >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
        ...     net (float[2] x) => (float[2] y) { y = Neg(x) }''')
        >>> rep = prepare(model, threads=1)
        >>> plain = rep.replica(optimize=False)
        >>> plain.options["threads"], plain.options["optimize"]
        (1, False)
        """
        unknown = options.keys() - self.options.keys() | options.keys() & {"base_dir"}
        if unknown:
            raise TypeError(f"replica() takes no option {', '.join(map(repr, sorted(unknown)))}")
        wanted = self.options | options | ({} if device is None else {"device": device})
        base_dir = wanted.pop("base_dir")
        named = _native(wanted)
        prepared = self._prepared.replica(_C.Options(**named))
        return type(self)(prepared, {**named, "base_dir": base_dir}, self._path, external=self._external)

    def trim(self) -> None:
        """Gives back to the system the memory that runs have left for later ones, as after an unusually large batch.

        Without it, memory that a few runs have not used goes back by itself. Runs may be under way in other threads.

        >>> import numpy as np
        >>> from onnx import parser
        >>> model = parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
        ...     net (float[N] x) => (float[N] y) { y = Neg(x) }''')
        >>> rep = prepare(model)
        >>> _ = rep.run([np.zeros(10_000_000, np.float32)])
        >>> rep.trim()
        """
        self._prepared.trim()

    def save(self, file: str | os.PathLike[str]) -> None:
        """Keeps the model as it is prepared, in one file that `onnx_torch.load` maps: all weights, as the model has
        them and as they were laid out for this CPU, and the options.

        The file stands for the model: it may be moved, and the model's own files are not needed any more.
        """
        from ._running import saving

        saving.save(file, self._prepared, self._whole_model(), self.options)

    def _whole_model(self) -> onnx.ModelProto:
        """Returns the model with all weights in it."""
        import onnx

        from ._models.files import read_external_data

        base_dir = self.options["base_dir"]
        model: onnx.ModelProto
        if self._path is None:
            model = onnx.ModelProto.FromString(self._prepared.serialized())
        else:
            model = onnx.load(self._path, format="protobuf", load_external_data=False)
            base_dir = base_dir or os.path.dirname(self._path)
        read_external_data(model, os.fspath(base_dir or ""), self._external, self.options["links"])
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        if self._saved is not None:
            return functools.partial(type(self).load, allow_aten=self.options["allow_aten"]), (self._saved,)
        source = self._prepared.serialized() if self._path is None else self._path
        return functools.partial(type(self).prepare, external=self._external, **self.options), (source,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it never changes

    def __copy__(self) -> Self:
        return self

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            if self._only_map is None or list(inputs) == [self._only_map]:
                return dict(inputs)
            return {self._only_map: inputs}
        if inputs is None:
            inputs = []
        if not isinstance(inputs, (list, tuple)):
            inputs = [inputs]
        # A list goes to all inputs, or to those that must be fed: old models list their weights as inputs too.
        required = [name for name, _, _, has_default in self.inputs if not has_default]
        names = required if len(inputs) == len(required) else self._input_names
        if len(inputs) > len(names) or len(inputs) < len(required):
            raise InputError(f"expected {len(required)} inputs ({', '.join(required)}), not {len(inputs)}")
        defaulted = {name for name, _, _, has_default in self.inputs if has_default}
        return {n: x for n, x in zip(names, inputs, strict=False) if x is not None or n not in defaulted}


prepare = PreparedModel.prepare
load = PreparedModel.load


@functools.cache
def _outputs_type(names: tuple[str, ...]) -> Any:
    numbers = {name: number for number, name in enumerate(names)}
    fields: Any = namedtuple("Outputs", names, rename=True)  # type: ignore[misc]

    class Outputs(fields):
        __slots__ = ()

        def __getitem__(self, key: Any) -> Any:
            return tuple.__getitem__(self, numbers[key] if isinstance(key, str) else key)

        def __reduce__(self) -> tuple[Any, ...]:  # the class itself is made anew where it is loaded
            return named_outputs, (names, tuple(self))

    return Outputs


def named_outputs(names: tuple[str, ...], values: Sequence[Any]) -> tuple[Any, ...]:
    """Makes a tuple whose items are found by position, by field, or by the model's name for them."""
    outputs: tuple[Any, ...] = tuple.__new__(_outputs_type(names), values)
    return outputs


def _origin(rep: PreparedModel) -> str:
    """Describes in words where a model came from."""
    return rep._path or rep._saved or f"a model given as bytes (graph {rep.model_info.graph_name!r})"


def _described(name: str, type_: str, shape: list[int | str | None] | None, has_default: bool = False) -> str:
    """Describes an input or output in words."""
    sizes = "" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
    return f"{name}: {type_}{sizes}{', which has a default' if has_default else ''}"


def device_name(device: str | Device) -> str:
    """Returns the name of a device, which may be one of ONNX's."""
    if isinstance(device, str) or not hasattr(device, "device_id"):
        return str(device)
    return f"CUDA:{device.device_id}" if device.type else "CPU"


def _native(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turns the options of `prepare` into those that `_C.Options` takes."""
    last_only = options["last_only"]
    return {
        **options,
        "device": device_name(options["device"]),
        "disabled_passes": set(options["disabled_passes"]),
        "last_only": {last_only} if isinstance(last_only, str) else set(last_only),
        "shapes": fixed_sizes(options["shapes"]),
        "limits": dict(options["limits"] or {}),
    }


def passes(device: str | Device = "CPU") -> dict[str, str]:
    """Lists the passes that a model's graph goes through for a device, in their order: what each does, by its name.

    >>> "fold" in passes()
    True
    """
    return dict(_C.passes(device_name(device)))


def _log_prepared(rep: PreparedModel, seconds: float) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    what = _origin(rep)
    operators = [op_type for op_type, *_ in rep._prepared.nodes]
    logger.info("prepared %s for %s in %.3f s: %d nodes", what, rep.options["device"], seconds, len(operators))
    logger.debug("operators of %s: %s", what, operator_counts(operators))
