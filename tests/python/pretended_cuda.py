"""A CUDA device that is not there, pretended on the CPU: it keeps which tensors lie there, and tells what would fail.

`PretendedCuda` answers all that ATen is told to do. A tensor on the device is a `DeviceTensor`, which holds one of the
CPU with its numbers, so that models run to their end and their results can be compared. Each operator is held to what
CUDA asks for: operands on one device, and a kernel that libtorch has registered for CUDA (it has, with or without a
GPU), and to element types where that kernel takes fewer than the CPU's. What kernels do inside is not seen here.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from onnx_torch import _C

aten = torch.ops.aten

# Operators that are looked at as a whole: they choose by the device's properties, or have the CPU's kernels inside.
WHOLE = {
    "aten::to",  # Python's own looks for the device
    "aten::convolution",
    "aten::_convolution",
    "aten::_batch_norm_impl_index",
    "aten::lstm",
    "aten::gru",
    "aten::rnn_tanh",
    "aten::rnn_relu",
    "aten::scaled_dot_product_attention",
    "aten::grid_sampler",
    "aten::one_hot",
}

# Operators whose kernel of CUDA takes operands of the CPU beside the device's.
TAKE_HOST_OPERANDS = {"aten::copy_", "aten::_to_copy", "aten::index.Tensor", "aten::index_put_", "aten::index_put"}

# Operators that take numbers from the host as tensors of rank 0, besides those that ATen calls pointwise.
TAKE_HOST_NUMBERS = {"aten::fill_", "aten::masked_fill", "aten::masked_fill_", "aten::where", "aten::lerp"}

# The element types that ATen's kernels for CUDA take, of the operators whose kernels for the CPU take integers as well:
# by the tables in its sources (Blas.cpp, DilatedMaxPool2d.cu, DilatedMaxPool3d.cu), by those of torch.testing (op_db),
# and by what torch 2.15 says to each type.
FLOATING = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
COMPLEX = {torch.complex64, torch.complex128}
SUMS_OF_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "_convolution")
WINDOWS = ("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d")
TYPES = {
    **{f"aten::{name}": FLOATING | COMPLEX for name in SUMS_OF_PRODUCTS},
    **{f"aten::{name}": FLOATING for name in (*WINDOWS, "upsample_bilinear2d", "upsample_bicubic2d")},
}

# The types that most kernels lack, for CUDA still more than for the CPU, and the operators that take them all the same.
WIDE_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}
CONVERT = {"aten::to", "aten::_to_copy", "aten::view_copy"}

# Operators that wait for the device, since the host needs what it has computed.
WAITS = {
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::repeat_interleave",
    "aten::bincount",
    "onnx_torch::non_max_suppression",
}


# Operators for which a number of the host is copied to the device, where others get it as an argument.
COPY_HOST_NUMBERS = {"aten::where", "aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::copy_"}


class DeviceTensor(torch.Tensor):
    """A tensor on the pretended device; `held` has its elements."""

    held: torch.Tensor
    place: torch.device

    @staticmethod
    def __new__(cls, held: torch.Tensor, place: torch.device) -> DeviceTensor:
        with torch.inference_mode(False):
            sizes = torch.empty_strided(held.shape, held.stride(), dtype=held.dtype, device="meta")
            self = torch.Tensor._make_subclass(
                cls, sizes, held.requires_grad, dispatch_device=True, device_for_backend_keys=place
            )
        self.held = held
        self.place = place
        return self

    def __repr__(self) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.held!r}, {self.place})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].place
        raise AssertionError(f"{func} on the pretended device, outside of it")


def _has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def _target(func: Any, args: Any, kwargs: Any, place: torch.device | None) -> torch.device | None:
    """Tells where the result of a call will lie, whose operands lie in a place; None is the host."""
    if func is aten.to.other:
        return getattr(args[1], "place", None)
    named = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.device)]
    if not named:
        return place
    return torch.device("cuda", named[0].index or 0) if named[0].type == "cuda" else None


class _Recorded(threading.local):
    """The recording of this thread: each call that the device was given, with its result."""

    calls: list[tuple[Any, Any, Any, Any]] | None = None


_recorded = _Recorded()
_lock = threading.Lock()


def _on_host(x: Any) -> Any:
    if isinstance(x, DeviceTensor):
        return x.held
    return torch.device("cpu") if isinstance(x, torch.device) else x


def _memory(x: DeviceTensor) -> int:
    return x.held.untyped_storage().data_ptr()


class PretendedRecording:
    """A CUDA graph: the calls that the device was given. A replay computes them again, with what lies in their operands
    then, and into the results that they had. What the host did meanwhile is not done again."""

    made = 0

    def __init__(self, device_index: int) -> None:
        PretendedRecording.made += 1
        self.replays = 0

    def record(self, work: Callable[[], None]) -> None:
        work()
        self.calls = _recorded.calls = []
        try:
            work()
        finally:
            _recorded.calls = None
        for _, args, kwargs, result in self.calls:  # nothing of it has been computed yet
            known = {_memory(x) for x in tree_flatten((args, kwargs))[0] if isinstance(x, DeviceTensor)}
            for x in tree_flatten(result)[0]:
                if isinstance(x, DeviceTensor) and x.held.is_floating_point() and _memory(x) not in known:
                    x.held.fill_(torch.nan)

    def replay(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        before()
        with torch.inference_mode():
            for func, args, kwargs, result in self.calls:
                again = func(*tree_map(_on_host, args), **tree_map(_on_host, kwargs))
                for old, new in zip(tree_flatten(result)[0], tree_flatten(again)[0], strict=True):
                    if isinstance(old, DeviceTensor) and old.held.data_ptr() != new.data_ptr():
                        old.held.copy_(new)
        after()

    def seconds_of(self, work: Callable[[], None]) -> float:
        """Runs the work, and tells a time as if each way took the same."""
        work()
        return 0.0


class PretendedCuda(TorchDispatchMode):
    """The mode in which this many CUDA devices are there. What CUDA cannot record fails while it is recorded.

    Attributes:
        waits: how often each operator made the host wait for the device.
        copies: how often something was copied to a device, or to the host.
        hosted: how often a kernel of this library that has none for CUDA ran all the same, on the CPU.
        pinned: how often something was copied to memory that is pinned.
        faults: what would have failed on CUDA, in so many words; TorchScript's error does not always tell.
        is_recorded: whether a caller is at a recording of its own, as far as onnx_torch is told.
    """

    within = 0  # how many of them are there, in all threads: the last one that goes takes the devices along

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self.count = count
        self.waits: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        self.hosted: Counter[str] = Counter()
        self.pinned = 0
        self.laid_out = 0
        self.faults: list[str] = []
        self.is_recorded = False

    def __enter__(self) -> PretendedCuda:
        with _lock:
            PretendedCuda.within += 1
            _C.assume_cuda_devices(self.count)
            _C.assume_recordings(PretendedRecording, lambda index: self.is_recorded)
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        with _lock:
            PretendedCuda.within -= 1
            if PretendedCuda.within == 0:
                _C.assume_cuda_devices(0)
                _C.assume_recordings(None, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._call(func, args, kwargs or {})
        except Exception as error:
            if any(isinstance(x, DeviceTensor) for x in tree_flatten((args, kwargs or {}))[0]):
                self.faults.append(f"{func.name()}: {type(error).__name__}: {error}")
            raise

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].place
        name = func._schema.name
        if name == "aten::is_pinned":
            return False
        if name in ("aten::pin_memory", "aten::_pin_memory"):
            self.pinned += 1
            return args[0].clone()
        if name == "aten::_cudnn_rnn_flatten_weight":  # only moves the weights into one block
            self.laid_out += 1
            return args[0][0]
        operands = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        places = {x.place for x in operands if isinstance(x, DeviceTensor)}
        place = _target(func, args, kwargs, next(iter(places), None))
        if not places and place is None:
            return func(*args, **kwargs)
        if name not in WHOLE:
            composed = self._composed(func, name)
            if composed is not None:
                with self._again():
                    return composed(*args, **kwargs)
        self._check(func, name, operands, places)
        if name in WAITS:
            self.waits[name] += 1
        if _recorded.calls is not None:
            self._check_recorded(name, operands, places, place)
        if name in ("aten::to", "aten::_to_copy") and places != {place}:
            self.copies[f"to {place or 'the host'}"] += 1
        return self._compute(func, args, kwargs, place)

    @contextlib.contextmanager
    def _again(self) -> Iterator[None]:
        TorchDispatchMode.__enter__(self)
        try:
            yield
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)

    def _composed(self, func: Any, name: str) -> Any:
        """Gives what an operator without a kernel of its own on CUDA is composed of."""
        full = func.name()
        if _has_kernel(full, "CUDA"):
            return None
        if _has_kernel(full, "CompositeImplicitAutograd"):
            return func.decompose
        if name.startswith("onnx_torch::") and _has_kernel(full, "CompositeExplicitAutograd"):
            return functools.partial(func._op_dk, torch._C.DispatchKey.CompositeExplicitAutograd)
        return None

    def _check(self, func: Any, name: str, operands: list[torch.Tensor], places: set[torch.device]) -> None:
        full = func.name()
        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(full, "CUDA"):
            if not name.startswith("onnx_torch::"):
                raise NotImplementedError(f"{full} has no kernel for CUDA")
            self.hosted[name] += 1
        wrong = {x.dtype for x in operands} - TYPES.get(name, set())
        if name in TYPES and wrong:
            raise NotImplementedError(f"{full} is not implemented for {wrong} on CUDA")
        if name not in CONVERT and any(x.dtype in WIDE_UNSIGNED for x in operands):
            raise NotImplementedError(f"{full} on CUDA, of {[x.dtype for x in operands]}")
        strangers = [x for x in operands if not isinstance(x, DeviceTensor)]
        if len(places) > 1 and name not in TAKE_HOST_OPERANDS:
            raise RuntimeError(f"{full}: expected all tensors to be on the same device, found {places}")
        if not places or not strangers or name in TAKE_HOST_OPERANDS:
            return
        takes_numbers = torch.Tag.pointwise in func.tags or name in TAKE_HOST_NUMBERS
        if takes_numbers and all(x.dim() == 0 for x in strangers):
            return
        found = ", ".join(f"{list(x.shape)} on {getattr(x, 'place', 'cpu')}" for x in operands)
        raise RuntimeError(f"{full}: expected all tensors to be on the same device, found {found}")

    def _check_recorded(
        self, name: str, operands: list[torch.Tensor], places: set[torch.device], place: torch.device | None
    ) -> None:
        strangers = [x for x in operands if not isinstance(x, DeviceTensor)]
        reads = bool(places) and place is None
        writes = bool(strangers) and (not places or name in COPY_HOST_NUMBERS or any(x.dim() for x in strangers))
        if name in WAITS or name in self.hosted or reads or writes:
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")

    def _compute(self, func: Any, args: Any, kwargs: Any, place: torch.device | None) -> Any:
        held = {id(x.held): x for x in tree_flatten((args, kwargs))[0] if isinstance(x, DeviceTensor)}

        def to_device(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            if id(x) in held and place is None:  # for the host, which does not see the device's memory
                return x.clone()
            if id(x) in held:  # it was changed in place, or is given back
                changed = held[id(x)]
                assert changed.shape == x.shape, f"{func} changes a shape in place"
                return changed
            return x if place is None else DeviceTensor(x, place)

        if func is aten._to_copy.default and place is not None:
            kwargs = {**kwargs, "non_blocking": False}
        result = tree_map(to_device, func(*tree_map(_on_host, args), **tree_map(_on_host, kwargs)))
        if _recorded.calls is not None:
            _recorded.calls.append((func, args, kwargs, result))
        return result
