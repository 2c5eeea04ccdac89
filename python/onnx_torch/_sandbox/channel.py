"""Messages between two processes, as JSON over a Unix socket, and memory that both see."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["Channel", "shared_memory"]

_LENGTH = struct.Struct("<Q")
_LARGEST = 1 << 28  # bytes of a message: strings come in it, arrays do not


class Channel:
    """One end of a connection. An EOFError tells that the other has ended, a TimeoutError that it does not answer."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Any, descriptor: int | None = None) -> None:
        text = json.dumps(message).encode()
        try:
            self._socket.settimeout(None)
            socket.send_fds(self._socket, [_LENGTH.pack(len(text))], [] if descriptor is None else [descriptor])
            self._socket.sendall(text)
        except OSError as error:
            raise EOFError from error

    def receive(self, seconds: float | None = None) -> Any:
        """Waits for the next message and returns it; raises a ValueError for what is none."""
        until = None if seconds is None else time.monotonic() + seconds
        (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size, until))
        if length > _LARGEST:
            raise ValueError(f"a message of {length} bytes is too long")
        try:
            return json.loads(self._bytes(length, until))
        except RecursionError as error:
            raise ValueError("a message is nested too deeply") from error

    def receive_with_descriptor(self) -> tuple[Any, int | None]:
        """Waits for the next message, and returns it with the file descriptor that came with it, if one did."""
        self._socket.settimeout(None)
        header, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
        header += self._bytes(_LENGTH.size - len(header), None)
        (length,) = _LENGTH.unpack(header)
        return json.loads(self._bytes(length, None)), next(iter(descriptors), None)

    def _bytes(self, count: int, until: float | None) -> bytes:
        received = bytearray()
        while len(received) < count:
            self._socket.settimeout(None if until is None else max(1e-6, until - time.monotonic()))
            try:
                part = self._socket.recv(min(count - len(received), 1 << 20))
            except TimeoutError:
                raise
            except OSError as error:
                raise EOFError from error
            if not part:
                raise EOFError
            received += part
        return bytes(received)


@contextlib.contextmanager
def shared_memory(size: int) -> Iterator[tuple[mmap.mmap, int]]:
    """Makes shared memory, and gives it with the file that stands for it, which nobody can make shorter or longer."""
    descriptor = os.memfd_create("onnx_torch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, max(1, size))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        yield mmap.mmap(descriptor, max(1, size)), descriptor
    finally:
        os.close(descriptor)
