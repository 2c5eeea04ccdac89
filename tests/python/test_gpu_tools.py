"""The parts of `./dev gpu` that need no GPU. What is packed is laid out again, steps go on where they were cut off, and
results get into the documentation.
"""

import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from tools.develop.steps import APT_PACKAGES
from tools.gpu import pack, parts, results
from tools.gpu.parts import Part, Step

from past_releases import RELEASES
from type_matrix import page

ROOT = Path(__file__).resolve().parents[2]
MACHINE = {
    **{"card": "Some GPU", "capability": "9.0", "driver": "580.1"},
    **{"torch": "2.11.0", "cuda": "13.0", "date": "2026-12-01"},
}


# --- The pack ---


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("onnx/__init__.py", "onnx/__init__.py"),
        ("onednn-1.data/data/lib/libdnnl.so.3", "../lib/libdnnl.so.3"),
        ("onednn-1.data/data/lib/libdnnl.so.3,sha256=ab,12", "../lib/libdnnl.so.3,sha256=ab,12"),
        ("ninja-1.data/scripts/ninja", "../bin/ninja"),
        ("some-1.data/platlib/some.so", "some.so"),
    ],
)
def test_a_wheels_files_go_where_pip_puts_them(name, goes):
    assert pack.installed(name) == goes


def test_a_wheel_is_laid_out_with_its_record(tmp_path):
    wheel = tmp_path / "some-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some/__init__.py", "there = True\n")
        archive.writestr("some-1.data/data/lib/libsome.so.3", "library")
        archive.writestr("some-1.data/data/lib/libsome.a", "is left out")
        archive.writestr("some-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: some\nVersion: 1\n")
        record = "some/__init__.py,,\nsome-1.data/data/lib/libsome.so.3,,\nsome-1.data/data/lib/libsome.a,,\n"
        archive.writestr("some-1.dist-info/RECORD", record)
    pack.unpack_wheel(wheel, tmp_path / "prefix")
    program = """
import importlib.metadata, some
assert some.there
print(*(file.locate().resolve() for file in importlib.metadata.files("some")), sep="\\n")
"""
    site = tmp_path / "prefix" / "site-packages"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(site)}
    ).stdout.split()
    assert told == [str(site / "some/__init__.py"), str(tmp_path / "prefix/lib/libsome.so.3")]
    assert all(Path(file).exists() for file in told)


def test_what_is_left_out_of_wheels():
    assert pack.LEFT_OUT.match("cmake/data/bin/cpack") and not pack.LEFT_OUT.match("cmake/data/bin/cmake")
    assert pack.LEFT_OUT.match("cmake/data/share/cmake-4.4/Help/index.rst")
    assert not pack.LEFT_OUT.match("cmake/data/share/cmake-4.4/Modules/FindGTest.cmake")
    assert pack.LEFT_OUT.match("numpy/linalg/tests/test_linalg.py") and not pack.LEFT_OUT.match("numpy/testing/x.py")
    assert not pack.LEFT_OUT.match("onnx/onnx-ml.proto") and not pack.LEFT_OUT.match(
        "onnx/backend/test/data/light/a.onnx"
    )


def test_descriptions_for_pkg_config_follow_the_files():
    before = "prefix=/usr\nexec_prefix=${prefix}\nlibdir=/usr/lib/x86_64-linux-gnu\nLibs: -L${libdir} -L/usr/lib\n"
    after = pack.moved(before, "/p")
    assert after == before.replace("=/usr", "=/p/usr").replace("-L/usr", "-L/p/usr")


def test_a_pack_is_laid_out_once(tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "ROOT", tmp_path / "checkout")
    inside = tmp_path / "inside"
    description = inside / pack.LIBRARIES / "pkgconfig" / "some.pc"
    description.parent.mkdir(parents=True)
    description.write_text("prefix=/usr\n")
    (inside / "pack.json").write_text('{"python": "3.12"}')
    (inside / "past_releases").mkdir()
    (inside / "past_releases" / "onnx-1.3.0-any.whl").write_text("cases")
    (tmp_path / "gpu_pack").mkdir()
    with tarfile.open(tmp_path / "gpu_pack" / "pack.tar.xz", "w:xz") as archive:
        archive.add(inside, ".")
    root = tmp_path / "laid_out"
    assert pack.unpack(tmp_path / "gpu_pack", root) == {"python": "3.12"}
    laid_out = root / "root" / pack.LIBRARIES / "pkgconfig" / "some.pc"
    assert laid_out.read_text() == f"prefix={root}/root/usr\n"
    assert (tmp_path / "checkout/.cache/past_releases/onnx-1.3.0-any.whl").read_text() == "cases"
    laid_out.write_text("as it was\n")
    pack.unpack(tmp_path / "gpu_pack", root)
    assert laid_out.read_text() == "as it was\n"
    with pytest.raises(SystemExit, match=r"\./dev gpu --pack"):
        pack.unpack(tmp_path / "nowhere", root)


def test_versions_are_those_of_the_requirements():
    pinned = (ROOT / "requirements" / "dev.txt").read_text()
    for requirement in pack.pins(pack.PYTHON_PACKAGES):
        assert requirement in pinned


def test_the_systems_packages_are_those_that_dev_installs():
    assert set(pack.DEBIAN_PACKAGES) <= set(APT_PACKAGES)


# --- Steps ---


def step(name, program, **more):
    return Step(name, [sys.executable, "-c", program], **more)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "LAID_OUT", tmp_path)
    said = []

    def call(steps, limit=60.0, jobs=1):
        said.clear()
        done = parts.run(Part("some", "", lambda: steps), steps, tmp_path / "results", limit, said.append, jobs)
        return done, list(said)

    return call


def outcome(tmp_path, name):
    return json.loads((tmp_path / "results" / "some" / f"{name}.json").read_text())


def test_steps_that_are_done_are_not_done_again(run, tmp_path):
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    steps = [step("good", count), step("bad", "print('why'); raise SystemExit(3)"), step("always", count, again=True)]
    assert run(steps)[0]
    assert run(steps)[0]
    assert (tmp_path / "count").read_text() == "xxx"
    assert outcome(tmp_path, "good")["result"] == "passed"
    assert outcome(tmp_path, "bad") | {"seconds": 0} == {
        **{"step": "bad", "result": "failed", "seconds": 0, "passed": 0, "failed": 0, "skipped": 0},
        **{"failures": ["why"], "more": {}},
    }


def test_a_step_that_is_cut_off_is_begun_anew_unless_it_had_all_the_time(run, tmp_path):
    slow = step("slow", "import time; time.sleep(60)")
    done, said = run([step("quick", "import time; time.sleep(0.8)"), slow], 2.0)
    assert not done and "slow was cut off" in said[-2] and "1 of 2 steps are left" in said[-1]
    assert not (tmp_path / "results" / "some" / "slow.json").exists()
    done, said = run([slow], 1.0)
    assert done and outcome(tmp_path, "slow")["result"] == "cut off"


def test_steps_go_side_by_side(run, tmp_path):
    """Two steps that run at a time, each of which waits for the other, pass."""
    program = "import pathlib, sys, time; mine, other = map(pathlib.Path, sys.argv[1:]); mine.touch()\n"
    program += "while not other.exists(): time.sleep(0.01)"
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    steps = [
        Step(name, [sys.executable, "-c", program, *files]) for name, files in (("a", (one, two)), ("b", (two, one)))
    ]
    assert run(steps, 30.0, jobs=2)[0]
    assert {outcome(tmp_path, name)["result"] for name in "ab"} == {"passed"}


def test_what_a_step_has_started_ends_with_it(run, tmp_path):
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    done, _ = run([Step("compile", [sys.executable, "-c", program, child])], 3.0)
    assert done
    state = Path("/proc") / (tmp_path / "pid").read_text() / "stat"
    for _ in range(100):  # it is killed, and ends when it has a processor
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("it goes on")


def test_a_build_that_fails_ends_its_part(run):
    done, said = run([step("configure", "print('no nvcc'); raise SystemExit(1)", again=True), step("compile", "")])
    assert not done and "no nvcc" in said[-1] and not any("compile" in line for line in said)


def test_a_run_of_pytest_is_counted(run, tmp_path):
    file = tmp_path / "test_some.py"
    file.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('device', ['CPU', 'CUDA:0'])\n"
        "def test_on(device): pass\n"
        "def test_gpu_fails(): assert 1 == 2\n"
        "@pytest.mark.skip\n"
        "def test_cuda_skipped(): pass\n"
    )
    assert run([parts.pytest("counted", str(file), *parts.ON_CUDA, "-c", os.devnull, "--rootdir", str(tmp_path))])[0]
    found = outcome(tmp_path, "counted")
    assert (found["result"], found["passed"], found["failed"], found["skipped"]) == ("failed", 1, 1, 1)
    assert found["failures"] == ["test_gpu_fails: assert 1 == 2"]


def test_a_result_that_is_not_there_is_a_failure(run, tmp_path):
    assert run([step("matrix", "", collect=lambda log: json.loads((tmp_path / "nowhere").read_text()))])[0]
    assert outcome(tmp_path, "matrix")["result"] == "failed"
    assert "FileNotFoundError" in outcome(tmp_path, "matrix")["failures"][0]


def test_every_part_is_made_of_steps_or_of_tests_that_are_there():
    assert {part.name for part in parts.PARTS} == set("build suite tests past matrix sanitizer endurance bench".split())
    names = [step.name for step in parts.test_steps()]
    assert {"test_cuda_kernels", "test_cuda_chains", "test_cuda_graphs", "test_variants"} <= set(names)
    assert not {"test_backend", "test_past_releases"} & set(names)
    memory = (ROOT / "tests" / "python" / "test_cuda_memory.py").read_text()
    assert "def test_memory_stays_flat" in memory and "def test_the_sanitizer" in memory


def test_the_past_releases_that_are_there_run(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    folder = tmp_path / ".cache" / "past_releases"
    folder.mkdir(parents=True)
    *most, last = RELEASES
    for release in most:
        (folder / f"onnx-{release}-any.whl").touch()
    assert [step.name for step in parts.past_steps()] == most
    assert all(step.variables == {} for step in parts.past_steps())
    (folder / f"onnx-{last}-any.whl").touch()
    assert all(step.variables == {"ONNX_TORCH_PAST_RELEASES": "all"} for step in parts.past_steps())


# --- Into the documentation ---


def results_folder(folder):
    """Writes a folder of results as a GPU machine would leave it."""
    (folder / "machine.json").write_text(json.dumps(MACHINE))
    base = {"seconds": 1.0, "passed": 0, "failed": 0, "skipped": 0, "failures": [], "more": {}}
    rows = [{"case": "bert"}, {"case": "gpt2"}]
    steps = {
        "suite/suite": {"step": "suite", "result": "failed", "passed": 2030, "failed": 3, "failures": ["a", "b", "c"]},
        "suite/selftest": {"step": "selftest", "result": "passed"},
        "matrix/matrix": {"step": "matrix", "result": "passed", "more": {"CUDA": {"Abs-1": {"T": "refused"}}}},
        "bench/bert": {"step": "bert", "result": "passed", "more": {"results": {"gpu": "Some GPU", "rows": rows[:1]}}},
        "bench/gpt2": {"step": "gpt2", "result": "passed", "more": {"results": {"gpu": "Some GPU", "rows": rows[1:]}}},
        "bench/vit": {"step": "vit", "result": "failed"},
    }
    for name, one in steps.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps({**base, **one}))


def test_results_get_into_the_records(tmp_path):
    folder, matrix = tmp_path / "folder", tmp_path / "type_matrix"
    folder.mkdir()
    matrix.mkdir()
    results_folder(folder)
    (matrix / "results.json").write_text('{"CPU": {"Abs-1": {"T": "ReferenceEvaluator"}}}')
    results.take(folder, matrix, write=False)
    recorded = json.loads((matrix / "results.json").read_text())
    assert recorded == {"CPU": {"Abs-1": {"T": "ReferenceEvaluator"}}, "CUDA": {"Abs-1": {"T": "refused"}}}
    gpu = json.loads((matrix / "gpu.json").read_text())
    assert gpu["card"] == "Some GPU" and gpu["parts"]["suite"]["steps_not_passed"] == ["suite"]
    performance = json.loads((folder / "performance.json").read_text())
    assert performance == {"gpu": "Some GPU", "rows": [{"case": "bert"}, {"case": "gpt2"}]}
    lines = page.gpu_lines(gpu)
    assert lines[1] == (
        "On a GPU, Some GPU (compute capability 9.0, driver 580.1), with torch 2.11.0 and CUDA 13.0, on 2026-12-01, "
        "by `./dev gpu`:"
    )
    assert "| suite | 2030 | 3 | 0 | 2 | suite |" in lines
    assert "| bench | 0 | 0 | 0 | 3 | vit |" in lines


def test_the_page_tells_of_a_gpu_once_there_was_one(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "GPU", tmp_path / "gpu.json")
    assert "On a GPU" not in page.page()
    (tmp_path / "gpu.json").write_text(json.dumps({**MACHINE, "parts": {}}))
    assert "On a GPU, Some GPU" in page.page()


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="no folder of results"):
        results.take(tmp_path)


# --- The command ---


def dev(*arguments):
    return subprocess.run([sys.executable, ROOT / "dev", "gpu", *arguments], capture_output=True, text=True)


def test_the_command_lists_the_parts():
    told = dev()
    assert told.returncode == 0 and dev("--help").stdout == told.stdout
    for part in parts.PARTS:
        assert f"  {part.name} " in told.stdout
    assert dev("frobnicate").returncode == 2


def test_no_gpu_is_said_plainly(monkeypatch):
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(SystemExit, match=r"^No CUDA device here: .+\. Only `\./dev gpu build`"):
        results.machine(variables)
