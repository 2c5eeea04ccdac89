"""A plugin of pytest that puts an engine in onnxruntime's place, and records each test's outcome at once.

The variables SUITES_ENGINE, SUITES_RECORD and SUITES_SHARE tell which engine, in which file, and one of how many tests.
A test that has a line in the file is left out, so that a run goes on behind one that has ended the process.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import random
import zlib
from pathlib import Path

import numpy as np
import pytest

from .comparison import FINISHED

ENGINE, RECORD = os.environ["SUITES_ENGINE"], Path(os.environ["SUITES_RECORD"])
SHARE = int(os.environ.get("SUITES_SHARE", "1"))
SECONDS = 300  # the limit of one test, whose process is ended then

if ENGINE == "onnx_torch":
    import onnx_torch

    onnx_torch.compat.install()

assert importlib.import_module("onnxruntime").get_build_info().startswith("onnx_torch") == (ENGINE == "onnx_torch")


def write(test: str, outcome: str, message: str = "") -> None:
    """Writes one line of the record; a test's last one counts."""
    with RECORD.open("a") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "message": message}) + "\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = {json.loads(line)["test"] for line in RECORD.read_text().splitlines()} if RECORD.exists() else set()
    items[:] = [item for item in items if item.nodeid not in done and zlib.crc32(item.nodeid.encode()) % SHARE == 0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    write(item.nodeid, "ended the process")
    random.seed(0)
    np.random.seed(0)
    faulthandler.dump_traceback_later(SECONDS, exit=True)


def pytest_runtest_teardown() -> None:
    faulthandler.cancel_dump_traceback_later()


def pytest_sessionfinish() -> None:
    write(FINISHED, "passed")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash else str(report.longrepr)
        write(report.nodeid, report.outcome, message if report.outcome == "failed" else "")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        write(report.nodeid, "failed", str(report.longrepr).strip().splitlines()[-1])
