"""`IOBinding`: values that a session reads from, and writes to, where the caller has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _C
from . import _devices
from ._devices import NativeDevice, TorchDevice
from ._errors import InvalidArgument
from ._options import RunOptions
from ._values import OrtValue, OrtValueVector, at_address, write_into

if TYPE_CHECKING:
    from ._session import InferenceSession

__all__ = ["IOBinding", "SessionIOBinding"]


class SessionIOBinding:
    """The class of onnxruntime's native module that `IOBinding` calls, and that names devices by objects."""

    def __init__(self, session: InferenceSession, /) -> None:
        self._session = session._sess
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, TorchDevice | OrtValue] = {}
        self._results = OrtValueVector()

    def _bind(self, name: str, value: Any) -> None:
        session = self._session
        if not any(name == arg.name for arg in (*session._inputs_meta, *session._overridable_initializers)):
            raise InvalidArgument(f"the model has no input {name!r}")
        self._inputs[name] = value

    def bind_input(
        self,
        name: str,
        source: Any,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
        /,
    ) -> None:
        """Takes an input from an array, or from memory at an address, on a device."""
        if buffer_ptr is None:
            self._bind(name, source)
        else:
            self._bind(name, at_address(buffer_ptr, _devices.torch_device(source), element_type, shape or ()))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue, /) -> None:
        """Takes an input from an OrtValue."""
        self._bind(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device: NativeDevice | TorchDevice,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
        /,
    ) -> None:
        """Puts an output on a device, in memory of its own or at an address."""
        target = _devices.torch_device(device)
        if buffer_ptr is None:
            self._outputs[name] = target
        else:
            self._outputs[name] = OrtValue._of(at_address(buffer_ptr, target, element_type, shape or ()))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue, /) -> None:
        """Puts an output into an OrtValue."""
        self._outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Waits till the inputs are on their devices."""
        if _C.cuda_device_count():
            import torch

            torch.cuda.synchronize()

    synchronize_outputs = synchronize_inputs

    def _run(self, run_options: RunOptions | None) -> None:
        if not self._outputs:
            raise InvalidArgument("At least one output should be requested.")
        targets = [target._data if isinstance(target, OrtValue) else None for target in self._outputs.values()]
        values = self._session._run_with_ort_values(list(self._outputs), self._inputs, run_options, targets)
        bound = zip(self._outputs.items(), values, strict=True)
        self._results = OrtValueVector(_placed(name, value, target) for (name, target), value in bound)

    def get_outputs(self) -> OrtValueVector:
        """Returns the outputs of the last run, in the order they were bound."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Returns the outputs of the last run, as arrays on the host."""
        return [value.numpy() for value in self._results]

    def clear_binding_inputs(self) -> None:
        """Unbinds all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbinds all outputs."""
        self._outputs.clear()


class IOBinding:
    """Inputs and outputs of a session, bound to memory on the host or on a CUDA device."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session._sess
        self._iobinding = SessionIOBinding(session)

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray[Any, Any]) -> None:
        """Takes an input from an array."""
        self._iobinding.bind_input(name, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Takes an input from memory at an address."""
        device = _devices.torch_device(device_type, device_id)
        self._iobinding.bind_input(name, device, element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Takes an input from an OrtValue."""
        self._iobinding.bind_ortvalue_input(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Puts an output on a device, in memory of its own or at an address."""
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        device = _devices.torch_device(device_type, device_id)
        self._iobinding.bind_output(name, device, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Puts an output into an OrtValue."""
        self._iobinding.bind_ortvalue_output(name, ortvalue)

    def synchronize_inputs(self) -> None:
        """Waits till the inputs are on their devices."""
        self._iobinding.synchronize_inputs()

    def synchronize_outputs(self) -> None:
        """Waits till the outputs are there."""
        self._iobinding.synchronize_outputs()

    def get_outputs(self) -> list[OrtValue]:
        """Returns the outputs of the last run, in the order they were bound."""
        return list(self._iobinding.get_outputs())

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Returns the outputs of the last run as an OrtValueVector."""
        return self._iobinding.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Returns the outputs of the last run, as arrays on the host."""
        return self._iobinding.copy_outputs_to_cpu()

    def clear_binding_inputs(self) -> None:
        """Unbinds all inputs."""
        self._iobinding.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        """Unbinds all outputs."""
        self._iobinding.clear_binding_outputs()


def _placed(name: str, value: OrtValue, target: TorchDevice | OrtValue) -> OrtValue:
    """Moves an output to the device, or into the memory, that it is bound to."""
    if isinstance(target, TorchDevice):
        return value._on(target)
    if value._data is not target._data:
        write_into(target._tensor(), value._tensor(), f"what the output {name!r} is bound to")
    return target
