"""The process of a sandbox: it imports what a model needs, gives up what it does not, and then meets the model."""

from __future__ import annotations

import mmap
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from ..errors import Error
from ..prepared_model import PreparedModel, prepare
from .channel import Channel
from .confinement import confine
from .shared_values import describe, place, restore, size


class _Model:
    """The requests that the process answers, as methods by their names."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rep: PreparedModel | None = None

    def prepare(self, given: Any, path: str | None, base_dir: str | None, options: dict[str, Any]) -> dict[str, Any]:
        self._rep = prepare(path if path is not None else given.tobytes(), base_dir=base_dir, **options)
        return {"inputs": self._rep.inputs, "outputs": self._rep.outputs}

    def run(self, inputs: Any, output_names: list[str] | None) -> dict[str, Any]:
        assert self._rep is not None
        values = self._rep.run(inputs, output_names=output_names, output="numpy")
        arrays: list[Any] = []
        self._channel.send({"values": describe(list(values), arrays), "bytes": size(arrays)})
        _, memory = _receive(self._channel)
        place(arrays, memory)
        return {}


def _receive(channel: Channel) -> tuple[Any, Any]:
    message, descriptor = channel.receive_with_descriptor()
    if descriptor is None:
        return message, b""
    memory = mmap.mmap(descriptor, 0)
    os.close(descriptor)
    return message, memory


def _answer(action: Callable[..., dict[str, Any]], *arguments: Any, **more: Any) -> dict[str, Any]:
    try:
        return action(*arguments, **more)
    except Error as error:
        of_node = {name: getattr(error, name) for name in ("node_name", "op_type", "domain", "version")}
        return {"error": type(error).__name__, "message": str(error), "node": of_node}
    except Exception as error:
        return {"error": "Error", "message": f"{type(error).__name__}: {error}", "node": {}}


def _warm_up() -> None:
    """Runs a small model, so that libraries read the files that they read once."""
    import numpy as np
    from onnx import parser

    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> net (float[4, N] x) => (float[4, 4] z) '
        "{ y = Transpose(x)  z = MatMul(x, y) }"
    )
    prepare(model, threads=1).run([np.ones((4, 8), np.float32)])


def _end_with(channel: Channel) -> None:
    """Ends the process with the one at the other end, even while a model runs."""
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLHUP | select.POLLRDHUP)
    poll.poll()
    os._exit(1)


def main() -> None:
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    _warm_up()
    confinement, _ = _receive(channel)
    channel.send(_answer(lambda: {"measures": confine(confinement["readable"], confinement["memory"])}))
    threading.Thread(target=_end_with, args=(channel,), daemon=True).start()
    model = _Model(channel)
    while True:
        request, memory = _receive(channel)
        action, value = getattr(model, request.pop("do")), restore(request.pop("value"), memory)
        channel.send(_answer(action, value, **request))


if __name__ == "__main__":
    main()
