"""compat.onnxruntime has onnxruntime's names, and compat.install() puts it in onnxruntime's place."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
import onnx_torch.compat.onnxruntime as ours
from models import model_of, tensor_info
from onnx_torch.compat._status import Status

pytest.importorskip("onnxruntime")
import onnxruntime_table as table

RELEASE = table.onnxruntime.__version__
same_release = pytest.mark.skipif(
    ours.__version__ != RELEASE, reason=f"onnxruntime {RELEASE} is not {ours.__version__}"
)


def run(program: str, folder: Path | None = None) -> str:
    """Gives what a program prints in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- Names ------------------------------------------------------------------------------------------------------------


@same_release
def test_the_page_of_names_is_up_to_date():
    assert table.PAGE.read_text() == table.page(), "run python tests/python/onnxruntime_table.py"


@same_release
@pytest.mark.parametrize("name", table.enumerations())
def test_enumerations_have_the_same_members(name):
    theirs = getattr(table.onnxruntime, name).__members__
    assert {member: int(value) for member, value in getattr(ours, name).__members__.items()} == {
        member: int(value) for member, value in theirs.items()
    }


def parameters(function):
    signature = inspect.signature(getattr(function, "__func__", function))
    return {p.name: (p.kind, p.default) for p in signature.parameters.values()}


@same_release
def test_functions_take_the_same_arguments():
    entries = [entry for cls in table.classes() for entry in table.members(cls)]
    entries += [table.Entry("__init__", cls.theirs.__init__, cls.ours.__init__) for cls in table.classes()]
    compared = 0
    for entry in entries + table.functions():
        function = getattr(entry.theirs, "__func__", entry.theirs)
        if inspect.isfunction(function) and entry.status is Status.WORKS and entry.ours is not object.__init__:
            assert parameters(entry.ours) == parameters(function), entry
            compared += 1
    assert compared > 50


@same_release
def test_what_is_refused_raises_and_what_is_ignored_does_not():
    entries = [entry for cls in table.classes() for entry in [cls, *table.members(cls)]] + table.functions()
    callables = [entry for entry in entries if callable(entry.ours)]
    refused = [entry for entry in callables if entry.status is Status.REFUSED]
    ignored = [entry for entry in callables if entry.status is Status.IGNORED]
    for entry in refused:
        with pytest.raises(onnx_torch.UnsupportedError, match=f"does not have onnxruntime's .*{entry.name}"):
            entry.ours()
    for entry in ignored:
        entry.ours(1, two=2)
    assert len(refused) > 10
    assert len(ignored) > 5


def test_refused_classes_serve_type_hints():
    assert not isinstance(3, ours.OrtEpContextData)
    assert ours.OrtSyncStream | None


@same_release
def test_devices_have_the_same_numbers():
    native, here = table.native.OrtDevice, table.our_native.OrtDevice
    for name in ("cpu", "cuda", "cann", "dml", "fpga", "gpu", "npu", "webgpu", "default_memory"):
        assert getattr(here, name)() == getattr(native, name)()
    theirs = importlib.import_module("onnxruntime.capi.onnxruntime_inference_collection")
    mine = importlib.import_module("onnx_torch.compat.onnxruntime.capi.onnxruntime_inference_collection")
    for name in ("cpu", "cuda", "cann", "dml", "gpu", "npu", "webgpu"):
        assert mine.get_ort_device_type(name) == theirs.get_ort_device_type(name)
    assert mine.OrtDevice is ours.OrtDevice
    for numbers in [(0, 0, 0), (1, 0, 3), (1, 5, 0x10DE, 2), (4, 0, 1)]:
        one, other = here(*numbers), native(*numbers)
        assert [one.device_type(), one.mem_type(), one.vendor_id(), one.device_id()] == [
            other.device_type(),
            other.mem_type(),
            other.vendor_id(),
            other.device_id(),
        ]
    for name in ("cpu", "cuda", "dml"):
        one, other = ours.OrtDevice.make(name, 1), table.onnxruntime.OrtDevice.make(name, 1)
        assert one.device_type() == other.device_type()
        assert one.device_vendor_id() == other.device_vendor_id()
        assert ours.OrtDevice(one._get_c_device()).device_id() == 1


@same_release
@pytest.mark.parametrize("sizes", [({},), (1, 2, 3, 4), ({"max_mem": 5, "max_power_of_two_extend_bytes": 6},)])
def test_arenas_keep_their_sizes(sizes):
    names = [name for name in dir(table.onnxruntime.OrtArenaCfg) if not name.startswith("_")]
    made = ours.OrtArenaCfg(*sizes)
    expected = table.onnxruntime.OrtArenaCfg(*sizes)
    assert [getattr(made, name) for name in names] == [getattr(expected, name) for name in names]
    with pytest.raises(RuntimeError, match="nothing"):
        ours.OrtArenaCfg({"nothing": 1})


@same_release
@pytest.mark.parametrize(
    "providers, options",
    [(None, None), (["B", ("A", {1: 2}), "B"], None), (["A", "B"], [{"x": 1}, {}]), (["A"], [{}, {}]), ([3], None)],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_providers_are_normalized_alike(providers, options):
    def outcome(module):
        try:
            return module.check_and_normalize_provider_args(providers, options, ["A"])
        except ValueError as error:
            return str(error)

    collection = "capi.onnxruntime_inference_collection"
    theirs = importlib.import_module(f"onnxruntime.{collection}")
    here = importlib.import_module(f"onnx_torch.compat.onnxruntime.{collection}")
    assert outcome(here) == (([], []) if providers is None else outcome(theirs))


@same_release
def test_the_types_of_quantization_are_the_same():
    from onnxruntime import quantization as theirs
    from onnxruntime.transformers.io_binding_helper import TypeHelper

    import onnx_torch.compat.onnxruntime.quantization as here
    from onnx_torch.compat.onnxruntime.transformers.io_binding_helper import TypeHelper as OurTypeHelper

    assert here.__file__.startswith(str(Path(onnx_torch.__file__).parent))
    for name in ("QuantType", "QuantFormat", "QuantizationMode", "CalibrationMethod"):
        members = getattr(theirs, name).__members__
        assert {n: m.value for n, m in getattr(here, name).__members__.items()} == {
            n: m.value for n, m in members.items()
        }
        assert [str(m) for m in getattr(here, name)] == [str(m) for m in members.values()]
    assert [t.tensor_type for t in here.QuantType] == [t.tensor_type for t in theirs.QuantType]
    assert here.QuantType.from_string("QInt8") is here.QuantType.QInt8
    with pytest.raises(ValueError, match="QInt9"):
        here.QuantType.from_string("QInt9")
    with pytest.raises(onnx_torch.UnsupportedError, match=r"quantize_dynamic: .*compat.install"):
        here.quantize_dynamic("model.onnx", "quantized.onnx")
    for type_ in ("tensor(float)", "tensor(bool)", "tensor(float16)", "tensor(int64)", "tensor(uint8)"):
        assert OurTypeHelper.ort_type_to_torch_type(type_) == TypeHelper.ort_type_to_torch_type(type_)
        assert np.dtype(OurTypeHelper.ort_type_to_numpy_type(type_)) == TypeHelper.ort_type_to_numpy_type(type_)
    with pytest.raises(ValueError, match="string"):
        OurTypeHelper.ort_type_to_numpy_type("tensor(string)")


def test_calibration_data_is_read_one_by_one():
    from onnx_torch.compat.onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = [1, 2]

        def get_next(self):
            return {"x": self.left.pop()} if self.left else None

    assert [inputs["x"] for inputs in Reader()] == [2, 1]


@pytest.mark.parametrize("name", ["training", "tools", "datasets"])
def test_submodules_without_meaning_say_so(name):
    with pytest.raises(ImportError, match=f"onnx_torch stands in for onnxruntime here and has no onnxruntime.{name}: "):
        importlib.import_module(f"onnx_torch.compat.onnxruntime.{name}")


def test_tells_who_it_is(capsys):
    ours.print_debug_info()
    assert "onnx_torch" in capsys.readouterr().out
    assert ours.get_build_info().startswith(f"onnx_torch {onnx_torch.__version__}")
    assert "Build Info" in ours.get_build_info()  # programs look for it
    with pytest.raises(RuntimeError, match="severity"):
        ours.set_default_logger_severity(7)


def test_backend_is_ours():
    package = "onnx_torch.compat.onnxruntime.backend"
    assert importlib.import_module(package).prepare is onnx_torch.backend.prepare
    assert importlib.import_module(f"{package}.backend").OnnxRuntimeBackend is onnx_torch.backend.Backend
    assert importlib.import_module(f"{package}.backend_rep").OnnxRuntimeBackendRep is onnx_torch.backend.BackendRep


# --- In onnxruntime's place -------------------------------------------------------------------------------------------


def test_installs_and_uninstalls():
    program = """
        import sys
        import onnx_torch
        onnx_torch.compat.install()
        import onnxruntime
        import onnxruntime as ort
        from onnxruntime.capi import onnxruntime_pybind11_state, _pybind_state as C
        from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
        import onnxruntime.backend
        assert ort is onnx_torch.compat.onnxruntime and InferenceSession is onnx_torch.InferenceSession
        assert C.get_available_providers() == ort.get_available_providers()
        try:
            ort.InferenceSession("nowhere.onnx")
        except onnxruntime_pybind11_state.NoSuchFile as error:
            assert isinstance(error, onnx_torch.Error)
        import onnxruntime.backend.backend
        try:
            __import__("onnxruntime.training.api")
        except ImportError as error:
            print(error)
        from onnxruntime import quantization
        from onnxruntime.tools import symbolic_shape_infer
        from onnxruntime.transformers.io_binding_helper import InferenceSession as Inner
        assert Inner is InferenceSession
        import onnxruntime.quantization.quant_utils as utils
        assert utils.QuantType is quantization.QuantType and utils is quantization.quant_utils
        for module in (quantization, symbolic_shape_infer):
            assert module.__file__.startswith(onnxruntime.__path__[0]) and "onnx_torch" not in module.__file__
        onnx_torch.compat.uninstall()
        assert not [name for name in sys.modules if name.partition(".")[0] == "onnxruntime"]
        assert not hasattr(onnx_torch.compat.onnxruntime, "quantization")
        import onnx_torch.compat.onnxruntime.quantization as here
        assert "onnx_torch" in here.__file__
        import onnxruntime
        print(onnxruntime.get_build_info().startswith("onnx_torch"))
    """
    lines = run(program).splitlines()
    assert [line.partition(": ")[0].rpartition(".")[2] for line in lines] == ["training", "False"]


def test_onnxruntime_s_quantization_runs_on_this(tmp_path):
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(size=(16, 4)).astype(np.float32), "w")
    info = [tensor_info(name, shape=["n", size], element=TensorProto.FLOAT) for name, size in (("x", 16), ("y", 4))]
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], info[:1], info[1:], 17, initializer=[weight])
    model.ir_version = 8
    onnx.save(model, tmp_path / "model.onnx")
    program = """
        import numpy as np, onnx, onnx_torch
        onnx_torch.compat.install()
        import onnxruntime
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
        x = np.random.default_rng(1).normal(size=(32, 16)).astype(np.float32)
        class Reader(CalibrationDataReader):
            batches = [x[:16], x[16:]]
            def get_next(self):
                return {"x": self.batches.pop()} if self.batches else None
        quant_pre_process("model.onnx", "prepared.onnx")
        quantize_static("prepared.onnx", "static.onnx", Reader(), quant_format=QuantFormat.QDQ)
        quantize_dynamic("prepared.onnx", "dynamic.onnx")
        expected, *quantized = (
            onnxruntime.InferenceSession(name).run(None, {"x": x})[0]
            for name in ("model.onnx", "static.onnx", "dynamic.onnx")
        )
        for y in quantized:
            print(0 < abs(y - expected).max() < 0.02 * abs(expected).max())
        print(sorted({node.op_type for node in onnx.load("static.onnx").graph.node}))
    """
    assert run(program, tmp_path).splitlines()[-3:] == [
        "True",
        "True",
        "['DequantizeLinear', 'MatMul', 'QuantizeLinear']",
    ]


QUANTIZED = {
    "gemm": "(float[N, 16] x) => (float[N, 4] y) { a = Gemm<transB = 1>(x, w, b) s = Sigmoid(a) y = Gemm(s, v, c) }"
    " | w 32 16 | b 32 | v 32 4 | c 4 | 5 16",
    "cnn": "(float[N, 3, 12, 12] x) => (float[N, 10] y) { a = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(a)"
    " p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r) c = Conv(p, v) q = GlobalAveragePool(c) f = Flatten(q)"
    " y = MatMul(f, g) } | w 8 3 3 3 | b 8 | v 8 8 3 3 | g 8 10 | 2 3 12 12",
    "residual": "(float[N, 8, 8, 8] x) => (float[N, 8, 8, 8] y) { a = Conv<pads = [1, 1, 1, 1]>(x, w) r = LeakyRelu(a)"
    " s = Add(r, x) t = Concat<axis = 1>(s, x) y = Conv(t, v) } | w 8 8 3 3 | v 8 16 1 1 | 2 8 8 8",
    "attention": "(float[N, 6, 16] x) => (float[N, 6, 16] y) { q = MatMul(x, w) k = MatMul(x, u) v = MatMul(x, t)"
    " z = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, z) p = Softmax(s) y = MatMul(p, v) }"
    " | w 16 16 | u 16 16 | t 16 16 | 2 6 16",
}


def test_onnxruntime_s_calibration_finds_the_same_on_this(tmp_path):
    """Each kind of quantization gives the models that it gives on onnxruntime, but for what sums round in scales."""
    rng = np.random.default_rng(0)
    for name, described in QUANTIZED.items():
        text, *weights, shape = described.split(" | ")
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> net {text}')
        for weight, *sizes in map(str.split, weights):
            value = rng.normal(0, 0.3, tuple(map(int, sizes))).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(value, weight))
        onnx.save(model, tmp_path / f"{name}.onnx")
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(4, *map(int, shape.split()))).astype(np.float32))
    program = """
        import sys, pathlib, numpy as np
        {install}
        from onnxruntime.quantization import (
            CalibrationDataReader, CalibrationMethod, QuantFormat, quantize_dynamic, quantize_static
        )
        class Reader(CalibrationDataReader):
            def __init__(self, file):
                self.rows = iter(np.load(file))
            def get_next(self):
                row = next(self.rows, None)
                return None if row is None else {{"x": row}}
        pathlib.Path("{engine}").mkdir()
        for name in {names}:
            source, target = name + ".onnx", "{engine}/" + name
            for method in CalibrationMethod.MinMax, CalibrationMethod.Entropy, CalibrationMethod.Percentile:
                for form in QuantFormat.QDQ, QuantFormat.QOperator:
                    quantize_static(
                        source, f"{{target}}_{{method.name}}_{{form.name}}.onnx", Reader(name + ".npy"),
                        calibrate_method=method, quant_format=form, per_channel=form is QuantFormat.QDQ,
                    )
            quantize_dynamic(source, target + "_dynamic.onnx")
    """
    for engine, install in ("theirs", ""), ("ours", "import onnx_torch; onnx_torch.compat.install()"):
        run(program.format(engine=engine, install=install, names=list(QUANTIZED)), tmp_path)
    files = sorted((tmp_path / "theirs").iterdir())
    assert len(files) == 7 * len(QUANTIZED)
    for file in files:
        theirs, ours = onnx.load(file).graph, onnx.load(tmp_path / "ours" / file.name).graph
        assert list(ours.node) == list(theirs.node), file.name
        for mine, other in zip(ours.initializer, theirs.initializer, strict=True):
            assert mine.name == other.name
            mine, other = numpy_helper.to_array(mine), numpy_helper.to_array(other)
            if other.dtype == np.float32:
                np.testing.assert_allclose(mine, other, rtol=1e-6, atol=0)
            else:
                np.testing.assert_array_equal(mine, other)


def test_is_a_context_manager():
    program = """
        import sys
        import onnx_torch
        for _ in range(2):
            with onnx_torch.compat.install() as module:
                with onnx_torch.compat.install():
                    import onnxruntime
                assert sys.modules["onnxruntime"] is onnxruntime is module
            assert "onnxruntime" not in sys.modules and "onnxruntime.capi" not in sys.modules
        import doctest
        print(doctest.testmod(onnx_torch.compat))
        import onnxruntime
        print(onnxruntime is module)
    """
    assert run(program).splitlines() == ["TestResults(failed=0, attempted=3)", "False"]


def test_refuses_where_onnxruntime_is_imported():
    program = """
        import onnxruntime
        import onnx_torch
        try:
            onnx_torch.compat.install()
        except ImportError as error:
            print(error)
        onnx_torch.compat.uninstall()
        import onnxruntime as again
        assert again is onnxruntime
    """
    assert "call onnx_torch.compat.install() before whatever imports it" in run(program)


def test_onnxruntime_itself_need_not_be_there():
    program = """
        import importlib.machinery, sys
        class Absent(importlib.machinery.PathFinder):
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                return None if name == "onnxruntime" else super().find_spec(name, path, target)
        sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Absent
        import onnx_torch
        onnx_torch.compat.install()
        import onnxruntime
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.quantization.calibrate import CalibrationMethod
        from onnxruntime.transformers.io_binding_helper import TypeHelper
        try:
            import onnxruntime.tools
        except ImportError as error:
            print(error)
        print(onnxruntime.get_device())
    """
    error, device = run(program).splitlines()
    assert error.startswith("onnx_torch stands in for onnxruntime here and has no onnxruntime.tools: ")
    assert device in ("CPU", "GPU")


# --- Examples ---------------------------------------------------------------------------------------------------------


def test_the_page_on_migrating_runs(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        example (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }
    """)
    onnx.save(model, tmp_path / "model.onnx")
    page, _, _ = (
        (table.PAGE.parent / "migrating.md").read_text().partition("## Programs")
    )  # test_programs.py runs those
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    assert run("\n".join(blocks), folder=tmp_path) == "[[1. 0.]] [[1. 0.]]"


@pytest.mark.parametrize(
    "module",
    ["compat._session", "compat._devices", "compat._options", "compat._values", "compat.onnxruntime"],
)
def test_examples(module):
    results = doctest.testmod(importlib.import_module(f"onnx_torch.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
