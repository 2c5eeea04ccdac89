"""`InferenceSession`: onnxruntime's interface, on a model prepared by this package.

>>> import numpy as np, onnx, onnx_torch
>>> model = onnx.parser.parse_model('''
...     <ir_version: 10, opset_import: ["" : 21]>
...     example (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }
... ''')
>>> session = onnx_torch.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
>>> [value.name for value in session.get_inputs()]
['x']
>>> session.run(["y"], {"x": np.array([[-1.0, 2.0]], np.float32)})
[array([[0., 2.]], dtype=float32)]

docs/onnxruntime.md lists each name of onnxruntime, and whether it works, is ignored or is refused.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import prepared_model
from .._models.given import ModelProto
from .._running.saved import is_saved
from .._running.values import OutputKind
from ..errors import InvalidModelError
from . import _devices, _environment
from ._binding import IOBinding, SessionIOBinding
from ._devices import CPU, CUDA, HOST, OrtEpDevice, OrtMemoryInfo, Provider, TorchDevice
from ._enums import ExecutionMode, GraphOptimizationLevel, OrtDeviceVendorId
from ._errors import (
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    ModelLoadCanceled,
    NoSuchFile,
    onnxruntime_errors,
    renamed,
)
from ._errors import NotImplemented as OrtNotImplemented
from ._options import RunOptions, SessionOptions
from ._profile import Profile
from ._sparse import SparseTensor
from ._status import ignored, works
from ._values import OrtValue

__all__ = [
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "SessionIOBinding",
]

_FORMAT = "session.load_model_format"
_EXTERNAL_FILES = "session.model_external_initializers_file_folder_path"
_ASSIGNMENT = "session.record_ep_graph_assignment_info"
_ALLOW_ATEN = "onnx_torch.allow_aten"
_LINKS = "onnx_torch.links"
_LIMITS = "onnx_torch.limits."  # followed by the name of one

_ARRAY = frozenset({np.ndarray})

_log = logging.getLogger(__name__)


# --- What a session says of its model ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model: its name, its ONNX type such as ``tensor(float)``, and its shape."""

    name: str
    type: str
    shape: list[int | str | None]


def _node_arg(name: str, type_: str, shape: list[int | str | None] | None) -> NodeArg:
    return NodeArg(name, type_.replace(", ", ","), shape or [])  # onnxruntime writes map(int64,tensor(float))


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata that a model holds about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


@dataclass(frozen=True)
class OrtEpAssignedNode:
    """A node of the model."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """The nodes that a provider runs: here all of the model's."""

    ep_name: str
    _nodes: list[OrtEpAssignedNode]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """Returns the nodes."""
        return self._nodes


# --- Loading ----------------------------------------------------------------------------------------------------------


def _check_source(source: bytes | str, load_format: str) -> None:
    """Raises onnxruntime's own errors, which `prepare` lacks, for a missing file and for onnxruntime's own format."""
    if isinstance(source, str) and not os.path.exists(source):
        raise NoSuchFile(f"Load model from {source} failed: File doesn't exist")
    is_ort = source[4:8] == b"ORTM" if isinstance(source, bytes) else source.endswith(".ort")
    if is_ort or load_format.upper() == "ORT":
        raise OrtNotImplemented("models in the ORT format are not read; give the ONNX model it was made from")


#: The options that a model may hold, and the function that turns the number of each into its value.
_STORED: dict[str, Callable[[int], Any]] = {
    "intra_op_num_threads": int,
    "inter_op_num_threads": int,
    "execution_mode": ExecutionMode,
    "graph_optimization_level": GraphOptimizationLevel,
    "enable_profiling": lambda number: (False, True)[number],
}


def _stored_options(source: bytes | str) -> SessionOptions | None:
    """Reads the options that the model holds, where ORT_LOAD_CONFIG_FROM_MODEL asks for them.

    They replace all others, even where the model holds none.
    """
    if os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") != "1":
        return None
    from ._session_model import read

    texts = [entry.value for entry in read(source).metadata_props if entry.key == "ort_config"]
    options = SessionOptions()
    try:
        held = json.loads(texts[0] if texts else "{}").get("session_options")
    except (ValueError, AttributeError) as error:
        raise Fail(f"the options that the model holds as ort_config are no JSON object: {error}") from error
    for name, number in held.items() if isinstance(held, dict) else ():
        if name not in _STORED:
            _log.warning("the model's ort_config holds %s, which is no option that a model may hold", name)
            continue
        try:
            if type(number) is not int or number < 0:
                raise ValueError(number)
            setattr(options, name, _STORED[name](number))
        except (ValueError, IndexError) as error:
            raise Fail(f"the model's ort_config cannot set {name} to {number!r}") from error
    return options


def _sizes(source: bytes | str, options: SessionOptions) -> dict[str, int]:
    """Collects the overrides of free dimensions, by the symbolic names that the model's inputs have."""
    by_name, by_denotation = options._dimensions, options._denotations
    if not by_name and not by_denotation:
        return {}
    from ._session_model import read

    sizes: dict[str, int] = {}
    for info in read(source).graph.input:
        for dim in info.type.tensor_type.shape.dim:
            size = by_name.get(dim.dim_param, by_denotation.get(dim.denotation))
            if dim.dim_param and size is not None:
                sizes[dim.dim_param] = size
    return sizes


@dataclass(frozen=True)
class Change:
    """A change of a model's inputs, for runs that feed them as only onnxruntime allows."""

    any_shape: frozenset[str] = frozenset()  #: inputs that are declared as scalars, and are fed something else
    absent: frozenset[str] = frozenset()  #: inputs that are fed None, and are no optional ones


def _is_set(options: Mapping[str, str], name: str) -> bool | None:
    """Tells whether a provider's option is set; None where it is absent."""
    value = options.get(name)
    if value is None:
        return None
    if value not in ("0", "false", "False", "1", "true", "True"):
        raise InvalidArgument(f"the provider's option {name} is 0 or 1, not {value!r}")
    return value in ("1", "true", "True")


def _limits(options: SessionOptions) -> dict[str, float]:
    """Collects the limits among the entries of a session's options, as `prepare` takes them."""
    given = {name: text for name, text in options._entries.items() if name.startswith(_LIMITS)}
    try:
        return {name.removeprefix(_LIMITS): float(text) for name, text in given.items()}
    except ValueError as error:
        raise InvalidArgument(f"a limit is a number: {error}") from error


def _model(source: bytes | str, options: SessionOptions, change: Change) -> ModelProto | bytes | str:
    """Returns the model, changed where the options and a change ask for it."""
    if not options._initializers and change == Change():
        return source
    from ._session_model import changed

    return changed(source, options._initializers, change)


def _folder(source: bytes | str, options: SessionOptions) -> str:
    """Returns the folder of external data: the model file's, and for bytes the working directory."""
    beside = os.path.dirname(os.path.abspath(source)) if isinstance(source, str) else os.getcwd()
    return options._entries.get(_EXTERNAL_FILES) or beside


def _prepared(
    source: bytes | str,
    options: SessionOptions,
    device: TorchDevice,
    provider_options: Mapping[str, str],
    change: Change = Change(),
) -> prepared_model.PreparedModel:
    _check_source(source, options._entries.get(_FORMAT, ""))
    allow_aten = options._entries.get(_ALLOW_ATEN) or "checked"
    if isinstance(source, str) and change == Change() and is_saved(source):
        return prepared_model.load(source, allow_aten=allow_aten)
    threads = options.intra_op_num_threads if options.use_per_session_threads else _environment.global_threads()
    try:
        model = _model(source, options, change)
        return prepared_model.prepare(
            model,
            f"CUDA:{device.index}" if device.type == "cuda" else "CPU",
            base_dir=options._entries.get(_EXTERNAL_FILES) if isinstance(model, str) else _folder(source, options),
            external=options._external or None,
            optimize=options.graph_optimization_level != GraphOptimizationLevel.ORT_DISABLE_ALL,
            threads=max(0, threads),
            shapes=_sizes(source, options),
            cuda_graphs=_is_set(provider_options, "enable_cuda_graph") if device.type == "cuda" else None,
            tf32=device.type == "cuda" and bool(_is_set(provider_options, "use_tf32")),
            limits=_limits(options),
            allow_aten=allow_aten,
            links=options._entries.get(_LINKS) or "follow",
        )
    except InvalidModelError as error:
        from ._session_model import is_onnx

        if not is_onnx(source):
            raise renamed(error, InvalidProtobuf) from error
        raise


def prepared_for_cpu(source: bytes | str, options: SessionOptions) -> prepared_model.PreparedModel:
    """Prepares a model as a session on the CPU does."""
    with onnxruntime_errors():
        return _prepared(source, options, HOST, {})


# --- Sessions ---------------------------------------------------------------------------------------------------------


@functools.cache
def _background() -> ThreadPoolExecutor:
    """Returns the threads of `run_async`."""
    return ThreadPoolExecutor(thread_name_prefix="onnx_torch")


class InferenceSession:
    """A model prepared to run, with the interface of ``onnxruntime.InferenceSession``.

    All of the model runs on the first provider of the list that is there; the CPU is the last resort. Any number of
    threads may call its `run` methods at the same time.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Prepares a model.

        Args:
            path_or_bytes: the model's file, or its serialized bytes.
            sess_options: options; docs/onnxruntime.md says which have a meaning here.
            providers: names such as "CUDAExecutionProvider", or pairs of a name and its options, in the order
                wanted. Those that are not there are warned of and left out. CUDA's options are ``device_id``, and
                ``enable_cuda_graph`` and ``use_tf32``, which are `prepare`'s ``cuda_graphs`` and ``tf32``.
            provider_options: the providers' options, where `providers` holds names only.
            **kwargs: ``disabled_optimizers``: where it names any, the model goes to `optimized_model_filepath` as it
                came, for tools that look for patterns of nodes themselves. Others are accepted for onnxruntime's sake,
                and ignored.
        """
        if not isinstance(path_or_bytes, (str, bytes, os.PathLike)):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options must be onnx_torch.SessionOptions, not '{type(sess_options)}'")
        self._source = path_or_bytes if isinstance(path_or_bytes, bytes) else os.fspath(path_or_bytes)
        self._model_path = self._source if isinstance(self._source, str) else None  # programs read it
        self._model_bytes = self._source if isinstance(self._source, bytes) else None
        if isinstance(self._source, bytes) and is_saved(self._source):
            folder = tempfile.TemporaryDirectory(prefix="onnx_torch.")
            weakref.finalize(self, folder.cleanup)
            file = Path(folder.name) / "compiled.onnx"
            file.write_bytes(self._source)
            self._source = str(file)
        self._sess_options = sess_options or SessionOptions()
        self._writes_optimized = not kwargs.get("disabled_optimizers")
        with onnxruntime_errors():
            self._sess_options = _stored_options(self._source) or self._sess_options
        self._prepare(providers, provider_options)

    def _prepare(
        self, providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[Any, Any]] | None
    ) -> None:
        options = self._sess_options
        if options._cancelled:
            raise ModelLoadCanceled("Model loading canceled due to user request.")
        self._provider, self._provider_options = self._chosen(providers, provider_options)
        number = int(self._provider_options.get("device_id", 0))
        self._device = TorchDevice("cuda", number) if self._provider == CUDA else HOST
        with onnxruntime_errors():
            self._rep = _prepared(self._source, options, self._device, self._provider_options)
            if options.optimized_model_filepath:
                from ._session_model import write

                write(self._source, _folder(self._source, options), options, optimized=self._writes_optimized)
        self._changed: dict[Change, prepared_model.PreparedModel] = {}
        self._describe(self._rep)
        self._profile = Profile(options.profile_file_prefix, self._provider) if options.enable_profiling else None
        self._profile_start_ns = self._profile.start_ns if self._profile else 0

    def _chosen(
        self, providers: Sequence[Provider] | None, provider_options: Sequence[Mapping[Any, Any]] | None
    ) -> tuple[str, dict[str, str]]:
        """Chooses the provider that runs the model, with its options."""
        of_options = self._sess_options._providers
        if providers and of_options:
            warnings.warn("the providers given to InferenceSession go before those of its options", stacklevel=4)
        wanted = providers or [(name, options) for name, options in of_options.items()]
        chosen = _devices.preferred(wanted, provider_options, stacklevel=5)
        if chosen:
            return next(iter(chosen.items()))
        return _devices.get_available_providers()[0] if providers is None and not of_options else CPU, {}

    def _describe(self, rep: prepared_model.PreparedModel) -> None:
        overridable = rep.model_info.ir_version >= 4  # before IR version 4, every initializer is an input too
        self._sparse = frozenset(rep._prepared.sparse_values)
        args = [(self._arg(name, type_, shape), default) for name, type_, shape, default in rep.inputs]
        self._inputs_meta = [arg for arg, default in args if not default]
        self._overridable_initializers = [arg for arg, default in args if default and overridable]
        self._optional = [arg.name for arg in self._inputs_meta if arg.type.startswith("optional")]
        self._scalars = {name for name, type_, shape, _ in rep.inputs if shape == [] and type_.startswith("tensor")}
        self._required = {arg.name for arg in self._inputs_meta}.difference(self._optional)
        self._texts = frozenset(name for name, type_, *_ in rep.inputs if type_ == "tensor(string)")
        self._converts = bool(self._optional or self._sparse or self._texts)
        fixed = rep.options["shapes"]
        self._outputs_are_merged = False
        self._outputs_meta = [
            self._arg(name, type_, [fixed.get(size, size) for size in shape or []])
            for (name, type_), shape in zip(rep.outputs, rep._prepared.output_shapes, strict=True)
        ]
        info = rep.model_info
        self._model_meta = ModelMetadata(
            info.producer_name,
            info.graph_name,
            info.domain,
            info.doc_string,
            info.graph_doc_string,
            info.model_version,
            rep.metadata,
        )

    def _arg(self, name: str, type_: str, shape: list[int | str | None] | None) -> NodeArg:
        return _node_arg(name, f"sparse_{type_}" if name in self._sparse else type_, shape)

    # --- What it is ---------------------------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Returns the inputs that must be fed."""
        return self._inputs_meta

    @works("shapes are those that the model declares, with what ONNX's own shape inference adds")
    def get_outputs(self) -> list[NodeArg]:
        """Returns the outputs, with the shapes that shape inference knows."""
        if not self._outputs_are_merged:
            from ._session_model import merged_shapes

            self._outputs_meta = merged_shapes(self._source, self._outputs_meta, self._sess_options)
            self._outputs_are_merged = True
        return self._outputs_meta

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Returns the initializers that may be fed."""
        return self._overridable_initializers

    def get_modelmeta(self) -> ModelMetadata:
        """Returns the metadata that the model holds about itself."""
        return self._model_meta

    def get_session_options(self) -> SessionOptions:
        """Returns the options that the session was made with."""
        return self._sess_options

    @works("the one provider that runs the model; no node falls back to another")
    def get_providers(self) -> list[str]:
        """Returns the provider that runs the model."""
        return [self._provider]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Returns the options of the provider that runs the model."""
        device = {"device_id": str(self._device.index)} if self._provider == CUDA else {}
        return {self._provider: {**device, **self._provider_options}}

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
    ) -> None:
        """Prepares the model anew for other providers."""
        _devices.check_known(providers)
        self._prepare(providers, provider_options)

    enable_fallback = disable_fallback = ignored("there is no fallback: an error is raised")

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Describes the memory in which each input is wanted."""
        return [_devices.memory_info(self._device) for _ in self._inputs_meta]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Describes the memory in which each output is."""
        return [_devices.memory_info(self._device) for _ in self._outputs_meta]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """Describes the device that takes each input."""
        return [_devices.ep_device(self._device) for _ in self._inputs_meta]

    @works("all nodes of the main graph, as the model has them")
    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Returns the nodes that the provider runs, where the option session.record_ep_graph_assignment_info is "1"."""
        if self._sess_options._entries.get(_ASSIGNMENT) != "1":
            raise Fail(f'the session option {_ASSIGNMENT} must be "1" for this')
        from ._session_model import read

        nodes = read(self._source).graph.node
        assigned = [OrtEpAssignedNode(node.name, node.domain, node.op_type) for node in nodes]
        return [OrtEpAssignedSubgraph(self._provider, assigned)]

    # --- Runs ---------------------------------------------------------------------------------------------------------

    @property
    def _sess(self) -> InferenceSession:
        """The native session that onnxruntime's session holds, and that programs call."""
        return self

    def _feeds(self, given: Mapping[str, Any]) -> tuple[prepared_model.PreparedModel, Mapping[str, Any]]:
        """Returns the model to run, and its feeds: unwrapped OrtValues, and None for an optional that is left out."""
        if not given.keys() >= self._required:
            missing = [arg.name for arg in self._inputs_meta if arg.name in self._required - given.keys()]
            raise InvalidArgument(f"Required inputs ({missing}) are missing from input feed ({list(given)}).")
        if not self._converts and _ARRAY.issuperset(map(type, given.values())) and not self._unlike_scalars(given):
            return self._rep, given
        values = {name: self._plain(name, value) for name, value in given.items()}
        fed = {name: value for name, value in values.items() if value is not None}
        absent, any_shape = self._required - fed.keys(), self._unlike_scalars(fed)
        changed = self._with(Change(frozenset(any_shape), frozenset(absent))) if absent or any_shape else self._rep
        return changed, dict.fromkeys(self._optional) | fed

    def _plain(self, name: str, value: Any) -> Any:
        """Unwraps a value: a sparse tensor becomes dense, and raw memory the bytes of texts."""
        value = value._data if isinstance(value, OrtValue) else value
        if isinstance(value, SparseTensor):
            return value._dense()
        if name in self._texts and isinstance(value, np.ndarray) and value.dtype.kind == "V":
            texts = np.empty(value.shape, object)
            texts.reshape(-1)[:] = [item.tobytes() for item in value.reshape(-1)]
            return texts
        return value

    def _unlike_scalars(self, fed: Mapping[str, Any]) -> list[str]:
        """Finds the inputs that are declared as scalars, and are fed something else."""
        return [name for name in self._scalars if name in fed and np.ndim(fed[name])]

    def _with(self, change: Change) -> prepared_model.PreparedModel:
        """Returns the model with its inputs changed, which is prepared once for each change."""
        if change not in self._changed:
            try:
                rep = _prepared(self._source, self._sess_options, self._device, self._provider_options, change)
            except InvalidModelError as error:
                missing = f" without {', '.join(sorted(change.absent))}" if change.absent else ""
                raise InvalidArgument(f"the model cannot be run{missing}: {error}") from error
            self._changed[change] = rep
        return self._changed[change]

    def _execute(
        self,
        output_names: Sequence[str] | None,
        given: Mapping[str, Any],
        run_options: RunOptions | None,
        kind: OutputKind,
        out: Sequence[Any] | None = None,
    ) -> list[Any]:
        if isinstance(output_names, str):
            raise TypeError("output_names must be a sequence of names, not one")
        stop = None if run_options is None else run_options._stop
        for adapter in () if run_options is None else run_options._adapters:
            given = {**given, **adapter._parameters}
        with onnxruntime_errors():
            rep, feeds = self._feeds(given)
            if self._profile is None:
                values = rep._values(feeds, output_names or (), kind, stop, out)
            else:
                values = self._profile.run(rep, dict(feeds), output_names or (), kind, stop)
        return self._with_sparse(values, output_names) if self._sparse else values

    def _with_sparse(self, values: list[Any], output_names: Sequence[str] | None) -> list[Any]:
        """Makes those outputs sparse that the model declares so."""
        names = output_names or [arg.name for arg in self._outputs_meta]
        dense = zip(names, values, strict=True)
        return [
            SparseTensor._of_dense(OrtValue._of(value).numpy()) if name in self._sparse else value
            for name, value in dense
        ]

    @works("bfloat16 and other types that numpy lacks come as ml_dtypes' arrays")
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Runs the model.

        Args:
            output_names: the outputs wanted; all by default. Only what they need is computed.
            input_feed: a value by each input's name: an array (numpy's, torch's, or any that speaks DLPack), a list for
                a sequence, a dictionary for a map, or an OrtValue.
            run_options: options of this run.

        Returns:
            A list of numpy arrays, lists for sequences and dictionaries for maps.
        """
        return self._execute(output_names, input_feed, run_options, "numpy")

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs the model on another thread, which then calls ``callback(results, user_data, error)``."""
        self._feeds(input_feed)  # a missing input is an error here, not on the other thread

        def run() -> None:
            results: list[Any] = []
            error = ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as failure:
                error = str(failure) or type(failure).__name__
            try:
                callback(results, user_data, error)
            except Exception:
                _log.exception("the callback of run_async failed")

        _background().submit(run)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Runs the model as `run` does, from OrtValues to OrtValues on the session's device."""
        return self._run_with_ort_values(output_names, input_dict_ort_values, run_options)

    def _run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: RunOptions | None,
        out: Sequence[Any] | None = None,
    ) -> list[OrtValue]:
        """Runs the model; an output that was written into its target in `out` comes as that."""
        types = {arg.name: arg.type for arg in self._outputs_meta}
        names = list(output_names or types)
        kind: OutputKind = "torch" if self._device.type == "cuda" else "numpy"
        values = self._execute(names, input_dict_ort_values, run_options, kind, out)
        return [OrtValue._of(value, types[name]) for name, value in zip(names, values, strict=True)]

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: list[OrtValue],
        fetch_devices: Sequence[Any],
    ) -> None:
        """Runs the model as `run_with_ort_values` does, and puts the outputs into the list `fetches`."""
        fetches[:] = self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds, strict=True)), run_options)

    def run_with_iobinding(
        self, iobinding: IOBinding | SessionIOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Runs the model on bound inputs and outputs."""
        bound = iobinding._iobinding if isinstance(iobinding, IOBinding) else iobinding
        if bound._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        bound._run(run_options)

    def io_binding(self) -> IOBinding:
        """Makes an object that binds inputs and outputs to memory."""
        return IOBinding(self)

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str,
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
    ) -> OrtValue:
        """Makes a tensor whose elements are not set."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    # --- The rest -----------------------------------------------------------------------------------------------------

    @works("the runs and the ONNX nodes in them, without their memory and shapes")
    def end_profiling(self) -> str:
        """Writes the profile, and returns the name of its file; an empty text where `enable_profiling` is off."""
        profile, self._profile = self._profile, None
        return profile.write() if profile else ""

    def get_profiling_start_time_ns(self) -> int:
        """Returns the time at which the profile started, by `time.time_ns`; 0 where there is none."""
        return self._profile_start_ns

    release_captured_graph = ignored("a recorded run goes with the session, or when eight others are newer")
    set_ep_dynamic_options = ignored("providers have no options that change later")
    get_tuning_results = ignored("kernels are not tuned", list)
    set_tuning_results = ignored("kernels are not tuned")
