"""ONNX's coverage report prints at the end of a run (and goes to CSV files if CSVDIR is set), then our counts."""

import os
import secrets
from collections import Counter
from fnmatch import fnmatch

import pytest

from random_numbers import begin_again

pytest_plugins = "onnx.backend.test.report"

SUITES = {
    "OnnxBackend": "official suite",
    "PlainBackend": "official suite without passes",
    "test_inputs_as_initializers": "its inputs as initializers",
    "test_symbolic_dimensions": "its dimensions symbolic",
    "test_operator_version": "operator versions in the table",
    "test_runs_on_one_device": "official cases on a pretended device",
    "test_past_case_on_a_device_that_is_pretended": "cases of past releases on a pretended device",
    "test_past_case": "cases of past releases",
    "test_past_mistake": "mistakes of past releases, proven",
}
# What goes other ways on other CPUs: it is run under each level of instructions (./dev test --isa each).
DEPEND_ON_THE_CPU = """backend chains contrib contrib_attention contrib_block_quantization
contrib_cached_attention contrib_layouts contrib_quantization cuda_chains matmul_nbits models open_dimensions
ops_attention ops_cast ops_conv ops_linear ops_ml ops_normalization ops_pooling ops_quantization ops_recurrent
ops_reduction pass_* passes plans precision saving widening""".split()
os.environ.setdefault("ONNX_TORCH_RANDOM_GRAPHS", str(secrets.randbelow(10**6)))
_outcomes: dict[str, Counter] = {title: Counter() for title in SUITES.values()}


@pytest.fixture(autouse=True)
def random_numbers_of_its_own() -> None:
    begin_again()


def pytest_report_header() -> str:
    return f"random graphs: ONNX_TORCH_RANDOM_GRAPHS={os.environ['ONNX_TORCH_RANDOM_GRAPHS']}"


def pytest_collection_modifyitems(items):
    for item in items:
        if any(fnmatch(item.path.stem, f"test_{name}") for name in DEPEND_ON_THE_CPU):
            item.add_marker(pytest.mark.isa)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        for mark, title in SUITES.items():
            if mark in report.nodeid:
                _outcomes[title][report.outcome] += 1
                return


def pytest_terminal_summary(terminalreporter):
    for title, outcomes in _outcomes.items():
        ran = outcomes["passed"] + outcomes["failed"]
        if ran:
            terminalreporter.write_line(f"{title}: {outcomes['passed']}/{ran} passed, {outcomes['skipped']} skipped")
