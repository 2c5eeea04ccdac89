"""ONNX's coverage report prints at the end of a run (and goes to CSV files if CSVDIR is set), then our counts."""

import io
import os
import secrets
from collections import Counter
from fnmatch import fnmatch

import pytest
from onnx.backend.test import report as onnx_report

from random_numbers import begin_again

pytest_plugins = onnx_report.__name__

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
# The tests of what goes other ways on other CPUs: they run under each level of instructions (./dev test --isa each),
# but for those that name one themselves.
DEPEND_ON_THE_CPU = """backend chains contrib contrib_attention contrib_block_quantization
contrib_cached_attention contrib_layouts contrib_quantization cuda_chains matmul_nbits models open_dimensions
ops_attention ops_cast ops_conv ops_linear ops_ml ops_normalization ops_pooling ops_quantization ops_recurrent
ops_reduction pass_* passes plans precision saving widening""".split()
# Of these, the ones on int8, bfloat16 and float16, by which the levels of AVX-512 differ.
NARROW = """backend contrib_block_quantization contrib_quantization matmul_nbits models ops_conv ops_linear
ops_quantization pass_halves pass_integer_products pass_matmul pass_pack* pass_quantized* passes plans precision
random_graphs saving widening""".split()
# The files of few tests that take longest. They begin first: no process then waits for another one's at the end.
TAKE_LONG = "cpp_package optimum programs ops_resize ray suites third_party".split()
os.environ["ONNX_TORCH_TEST_HOOKS"] = "1"  # for pretended_cuda.py, here and in processes: before onnx_torch is imported
os.environ.setdefault("ONNX_TORCH_RANDOM_GRAPHS", str(secrets.randbelow(10**6)))
if "ONNX_HOME" in os.environ and "PYTEST_XDIST_WORKER" in os.environ:  # the official suite unpacks its models there
    os.environ["ONNX_HOME"] += "_" + os.environ["PYTEST_XDIST_WORKER"]
_outcomes: dict[str, Counter] = {title: Counter() for title in SUITES.values()}
_reports_of_workers: list[str] = []


@pytest.fixture(autouse=True)
def random_numbers_of_its_own() -> None:
    begin_again()


def pytest_report_header() -> str:
    return f"random graphs: ONNX_TORCH_RANDOM_GRAPHS={os.environ['ONNX_TORCH_RANDOM_GRAPHS']}"


def lies_in(item, names):
    return any(fnmatch(item.path.stem, f"test_{name}") for name in names)


def pytest_collection_modifyitems(items):
    for item in items:
        if lies_in(item, DEPEND_ON_THE_CPU) and "capability" not in item.fixturenames:
            item.add_marker(pytest.mark.isa)
        if lies_in(item, NARROW):
            item.add_marker(pytest.mark.narrow)
    items.sort(key=lambda item: not lies_in(item, TAKE_LONG))


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        for mark, title in SUITES.items():
            if mark in report.nodeid:
                _outcomes[title][report.outcome] += 1
                return


# Under pytest-xdist (./dev test) the worker that ran the official suite makes ONNX's report; the controller prints it.


def pytest_configure(config):
    if getattr(config.option, "cov_source", None) and getattr(config.option, "numprocesses", None):
        # The workers write the counts of C++ lines as they end, which takes longer than pytest-xdist waits for them.
        from xdist.workermanage import NodeManager

        NodeManager.EXIT_TIMEOUT = 300
    if config.getoption("dist", "no") != "no":
        config.pluginmanager.unregister(name=onnx_report.__name__)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput") and onnx_report._marks:
        text = io.StringIO()
        onnx_report.pytest_terminal_summary(text, session.exitstatus)
        session.config.workeroutput["onnx_report"] = text.getvalue()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    _reports_of_workers.extend(filter(None, [getattr(node, "workeroutput", {}).get("onnx_report")]))


def pytest_terminal_summary(terminalreporter):
    for text in _reports_of_workers:
        terminalreporter.write(text)
    for title, outcomes in _outcomes.items():
        ran = outcomes["passed"] + outcomes["failed"]
        if ran:
            terminalreporter.write_line(f"{title}: {outcomes['passed']}/{ran} passed, {outcomes['skipped']} skipped")
