"""The profile of a session's runs, as a Chrome trace."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch


class Profile:
    """Records what runs; one run at a time, because torch has one profiler."""

    _one_at_a_time = threading.Lock()

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        self._prefix = prefix
        self._events: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Records one run: the whole of it, and torch's operators."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with self._one_at_a_time:
            begin = time.monotonic_ns()
            with torch.profiler.profile(activities=activities) as profiler:
                yield
            end = time.monotonic_ns()
            offset = (begin - self.start_ns) / 1000
            self._add("model_run", "Session", offset, (end - begin) / 1000, 0)
            for event in profiler.events():
                span = event.time_range
                self._add(event.name, "Node", offset + span.start, span.end - span.start, event.thread)

    def _add(self, name: str, category: str, start: float, duration: float, thread: int) -> None:
        event = {"cat": category, "pid": os.getpid(), "tid": thread, "dur": duration, "ts": start, "ph": "X"}
        self._events.append({**event, "name": name, "args": {}})

    def write(self) -> str:
        """Writes the events to a file named by the prefix and the time; its name."""
        name = f"{self._prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        with open(name, "w", encoding="utf-8") as file:
            json.dump(self._events, file)
        return name
