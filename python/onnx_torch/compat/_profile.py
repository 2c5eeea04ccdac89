"""The profile of a session's runs: a Chrome trace in onnxruntime's form."""

from __future__ import annotations

import datetime
import json
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from .. import _C
from .._running.values import OutputKind, as_torch
from ..prepared_model import PreparedModel


class Profile:
    """A record of runs, and of the ONNX nodes in them."""

    def __init__(self, prefix: str, provider: str) -> None:
        self.start_ns = time.time_ns()  # wall-clock time, as onnxruntime's
        self._begin = time.monotonic_ns()
        self._prefix, self._provider = prefix, provider
        self._events: list[dict[str, Any]] = []

    def run(
        self,
        rep: PreparedModel,
        feeds: dict[str, Any],
        output_names: Sequence[str],
        kind: OutputKind,
        stop: _C.StopFlag | None,
    ) -> list[Any]:
        """Records one run, and returns its outputs."""
        begin = time.monotonic_ns()
        nodes, times, outputs = rep._prepared.profile(feeds, output_names, as_torch(kind), stop)
        self._add("Session", "model_run", begin, time.monotonic_ns() - begin, {})
        for number, start, duration, _ in times.tolist():
            op_type, name, *_ = nodes[number]
            args = {"op_name": op_type, "node_index": str(number), "provider": self._provider}
            self._add("Node", f"{name or op_type}_kernel_time", begin + start, duration, args)
        return list(outputs)

    def _add(self, category: str, name: str, start_ns: int, duration_ns: int, args: dict[str, str]) -> None:
        where = {"pid": os.getpid(), "tid": threading.get_native_id()}
        span = {"ts": (start_ns - self._begin) / 1000, "dur": duration_ns / 1000, "ph": "X"}
        self._events.append({"cat": category, "name": name, **where, **span, "args": args})

    def write(self) -> str:
        """Writes the events to a file named by the prefix and the time, and returns its name."""
        now = datetime.datetime.now()
        name = f"{self._prefix}_{now:%Y-%m-%d_%H-%M-%S}_{now.microsecond // 1000:03}.json"
        with open(name, "w", encoding="utf-8") as file:
            json.dump(self._events, file)
        return name
