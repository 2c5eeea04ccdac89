"""`SessionOptions`, `RunOptions` and `OrtArenaCfg`."""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _C
from ._devices import CPU, OrtEpDevice, get_available_providers
from ._enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy
from ._errors import Fail, InvalidArgument
from ._status import MARK, Status, ignored, refused, works

if TYPE_CHECKING:
    from ._adapters import LoraAdapter
    from ._values import OrtValue

__all__ = ["OrtArenaCfg", "RunOptions", "SessionOptions"]


def _convert(value: Any, default: Any) -> Any:
    """Converts a value to an option's type; raises TypeError where that cannot be."""
    if isinstance(default, bool):
        return bool(value)
    if isinstance(default, (enum.Enum, str)):
        if not isinstance(value, type(default)):
            raise TypeError(f"must be {type(default).__name__}, not {type(value).__name__}")
        return value
    return operator.index(value)


class _Option:
    """An attribute with a type and a default; one that is ignored keeps its value all the same."""

    def __init__(self, default: Any, note: str = "", status: Status = Status.WORKS) -> None:
        self._default = default
        setattr(self, MARK, (status, note))

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance._values.get(self._name, self._default)

    def __set__(self, instance: Any, value: Any) -> None:
        try:
            instance._values[self._name] = _convert(value, self._default)
        except TypeError as error:
            raise TypeError(f"{type(instance).__name__}.{self._name} {error}") from None


def _kept(default: Any, note: str) -> _Option:
    return _Option(default, note, Status.IGNORED)


class _Options:
    __slots__ = ("_entries", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._entries: dict[str, str] = {}

    def _add_entry(self, key: str, value: str, /) -> None:
        self._entries[_convert(key, "")] = _convert(value, "")

    def _get_entry(self, key: str, /) -> str:
        if key not in self._entries:
            raise Fail(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]


_POOLS = "torch's own thread pools run the model"
_MEMORY = "torch's allocators manage the memory"
_LOG = "this package logs through Python's `logging`, under the name `onnx_torch`"
_CONTEXT = "models here hold no precompiled parts"


class SessionOptions(_Options):
    """The options of a session, which say how it runs its model.

    >>> import onnx_torch
    >>> options = onnx_torch.SessionOptions()
    >>> options.intra_op_num_threads = 1
    """

    __slots__ = ("_cancelled", "_denotations", "_dimensions", "_external", "_initializers", "_providers")

    intra_op_num_threads = _Option(0)
    inter_op_num_threads = _kept(0, _POOLS)
    execution_mode = _kept(ExecutionMode.ORT_SEQUENTIAL, "nodes run one after another")
    execution_order = _kept(ExecutionOrder.DEFAULT, "nodes run in the graph's order")
    graph_optimization_level = _Option(
        GraphOptimizationLevel.ORT_ENABLE_ALL,
        "all levels but ORT_DISABLE_ALL run the same; a model that is written has its level",
    )
    enable_profiling = _Option(False)
    profile_file_prefix = _Option("onnxruntime_profile_")
    optimized_model_filepath = _Option("", "the model that `onnx_torch.optimize` makes is written, for any engine")
    enable_cpu_mem_arena = _kept(True, _MEMORY)
    enable_mem_pattern = _kept(True, _MEMORY)
    enable_mem_reuse = _kept(True, _MEMORY)
    use_deterministic_compute = _kept(False, "see `torch.use_deterministic_algorithms`")
    use_per_session_threads = _Option(True)
    log_severity_level = _kept(-1, _LOG)
    log_verbosity_level = _kept(0, _LOG)
    logid = _kept("", _LOG)

    def __init__(self) -> None:
        super().__init__()
        self._cancelled = False
        self._denotations: dict[str, int] = {}
        self._dimensions: dict[str, int] = {}
        self._external: dict[str, memoryview] = {}
        self._initializers: dict[str, OrtValue] = {}
        self._providers: dict[str, dict[str, str]] = {}

    @works("a name that the model does not have is ignored")
    def add_free_dimension_override_by_name(self, name: str, size: int, /) -> None:
        """Fixes the inputs' dimension of that symbolic name."""
        self._dimensions[name] = operator.index(size)

    @works("for dimensions that have a symbolic name too")
    def add_free_dimension_override_by_denotation(self, denotation: str, size: int, /) -> None:
        """Fixes the inputs' dimensions of that denotation."""
        self._denotations[denotation] = operator.index(size)

    def add_initializer(self, name: str, value: OrtValue, /) -> None:
        """Takes an initializer's value from an OrtValue instead of the model."""
        self._initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue], /) -> None:
        """Takes the values of initializers from OrtValues instead of the model's external files."""
        self._initializers.update(zip(names, values, strict=True))

    @works("without a copy: the buffers must stay as they are while sessions live")
    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int], /
    ) -> None:
        """Takes files of external data from buffers, by the names that the model has for them."""
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            if name in self._external:
                raise InvalidArgument(f"the external file {name!r} was given before")
            self._external[name] = memoryview(buffer).cast("B")[:length]

    def add_provider(self, name: str, options: Mapping[str, str], /) -> None:
        """Adds a provider to those that a session prefers, in this order."""
        self._providers[name] = dict(options)

    def add_provider_for_devices(self, devices: Sequence[OrtEpDevice], options: Mapping[str, str], /) -> None:
        """Adds the provider of these devices."""
        for device in devices:
            self._providers[device.ep_name] = {**device.ep_options, **options}

    def has_providers(self) -> bool:
        """Tells whether a provider was added."""
        return bool(self._providers)

    @works("PREFER_GPU and MAX_PERFORMANCE take CUDA where it is there, all others the CPU")
    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy, /) -> None:
        """Chooses the provider by what it is good for."""
        wishes = OrtExecutionProviderDevicePolicy
        fast = policy in (wishes.PREFER_GPU, wishes.MAX_PERFORMANCE)
        self._providers = {get_available_providers()[0] if fast else CPU: {}}

    set_provider_selection_policy_delegate = refused("name the providers instead")

    @works(
        "all are kept; `session.load_model_format`, `session.model_external_initializers_file_folder_path`, "
        "`session.optimized_model_external_initializers_file_name`, `session.record_ep_graph_assignment_info` and, "
        "as the options of `prepare`, `onnx_torch.allow_aten`, `onnx_torch.links` and `onnx_torch.limits.seconds` and "
        "the other limits have a meaning here"
    )
    def add_session_config_entry(self, key: str, value: str, /) -> None:
        """Sets an option by its name."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str, /) -> str:
        """Returns the value of an option that was set by its name."""
        return self._get_entry(key)

    def set_load_cancellation_flag(self, cancel: bool, /) -> None:
        """Makes sessions that are made with these options stop at once."""
        self._cancelled = bool(cancel)

    register_custom_ops_library = refused(
        "they are compiled against onnxruntime's interface; see onnx_torch.register_op"
    )
    set_ep_context_data_read_func = refused(_CONTEXT)
    clear_ep_context_data_read_func = ignored(_CONTEXT)


class RunOptions(_Options):
    """The options of one run."""

    __slots__ = ("_adapters", "_stop")

    def __init__(self) -> None:
        super().__init__()
        self._adapters: list[LoraAdapter] = []
        self._stop = _C.StopFlag()

    @property
    @works("looked at in front of each node and each iteration; a node under way is finished first")
    def terminate(self) -> bool:
        """True where the runs that are given these options are to end; any thread may set it."""
        return self._stop.set

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._stop.set = bool(value)

    only_execute_path_to_fetches = _kept(False, "it is always so")
    log_severity_level = _kept(-1, _LOG)
    log_verbosity_level = _kept(0, _LOG)
    logid = _kept("", _LOG)

    @works("all are kept, none has a meaning here")
    def add_run_config_entry(self, key: str, value: str, /) -> None:
        """Sets an option by its name."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str, /) -> str:
        """Returns the value of an option that was set by its name."""
        return self._get_entry(key)

    def add_active_adapter(self, adapter: LoraAdapter, /) -> None:
        """Feeds the adapter's parameters, by their names, in place of what the model or the caller has for them."""
        self._adapters.append(adapter)


@works("its sizes are kept")
class OrtArenaCfg(_Options):
    """The sizes of an arena: a dictionary of them by their names, or the first four."""

    __slots__ = ()

    max_mem = _kept(0, _MEMORY)
    arena_extend_strategy = _kept(-1, _MEMORY)
    initial_chunk_size_bytes = _kept(-1, _MEMORY)
    max_dead_bytes_per_chunk = _kept(-1, _MEMORY)
    initial_growth_chunk_size_bytes = _kept(-1, _MEMORY)
    max_power_of_two_extend_bytes = _kept(-1, _MEMORY)

    def __init__(self, *sizes: Any) -> None:
        super().__init__()
        known = [name for name, value in vars(OrtArenaCfg).items() if isinstance(value, _Option)]
        given = sizes[0] if len(sizes) == 1 else dict(zip(known[:4], sizes, strict=True))
        for name, size in given.items():
            if name not in known:
                raise InvalidArgument(f"an arena has no {name!r}; it has {', '.join(known)}")
            setattr(self, name, size)
