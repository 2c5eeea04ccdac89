"""Rows of files in, Parquet out: what feeds an input, the order, and what becomes of work that is cut off."""

import multiprocessing
import os
import signal
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onnx_torch
import onnx_torch_cli
from models import model_of, tensor_info

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from onnx_torch import batch  # noqa: E402
from onnx_torch._batch import workers as batch_workers  # noqa: E402
from onnx_torch._batch.arrow_values import column_values, to_arrow  # noqa: E402
from onnx_torch._batch.sources import ArrayRows, parts_of  # noqa: E402

WEIGHT = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
ROWS = 103


def model(first="batch", element=TensorProto.FLOAT):
    """Makes a model: y = x @ WEIGHT, z = x."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    x = tensor_info("x", element=element, shape=[first, 3])
    return model_of(nodes, [x], ["y", "z"], initializer=[numpy_helper.from_array(WEIGHT, "w")])


def image_model(shape, element=TensorProto.FLOAT):
    x = tensor_info("pixels", element=element, shape=shape)
    return model_of([helper.make_node("Identity", ["pixels"], ["seen"])], [x], ["seen"])


def features(rows=ROWS):
    return np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)


@pytest.fixture
def table(tmp_path):
    """Writes two Parquet files of row groups of 10 and 20 rows: a key that is not in order, the features as lists."""
    keys = np.random.default_rng(0).permutation(ROWS)
    columns = {"key": pa.array(keys), "x": to_arrow("x", features())}
    folder = tmp_path / "rows"
    folder.mkdir()
    pq.write_table(pa.table(columns).slice(0, 40), folder / "a.parquet", row_group_size=10)
    pq.write_table(pa.table(columns).slice(40), folder / "b.parquet", row_group_size=20)
    return folder


def run(source, out, model=model, **options):
    """Runs predict in this process, and reads what it wrote."""
    made = model() if callable(model) else model
    summary = batch.predict(made, source, out, **{"workers": 0, "batch_size": 4} | options)
    result = pq.read_table(out)
    assert summary.rows == result.num_rows
    assert [file.name for file in out.parent.iterdir() if file.name.startswith(".")] == []
    return result


def values(result, name):
    return column_values(name, result.column(name))


# --- Sources ----------------------------------------------------------------------------------------------------------


def test_parquet_rows_keep_their_order_and_their_other_columns(table, tmp_path):
    result = run(table, tmp_path / "out.parquet")
    assert result.column_names == ["key", "y", "z"]
    np.testing.assert_array_equal(values(result, "key"), np.random.default_rng(0).permutation(ROWS))
    np.testing.assert_allclose(values(result, "y"), features() @ WEIGHT)
    np.testing.assert_array_equal(values(result, "z"), features())


def test_scalar_columns_make_one_input(tmp_path):
    x = features()
    columns = {name: x[:, i].astype(np.float64) for i, name in enumerate("abc")}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    options = {"columns": {"x": ["a", "b", "c"]}, "outputs": {"y": "score"}, "keep": ["b"]}
    result = run(tmp_path / "in.parquet", tmp_path / "out.parquet", **options)
    assert result.column_names == ["b", "score"]
    np.testing.assert_allclose(values(result, "score"), x @ WEIGHT)
    np.testing.assert_array_equal(values(result, "b"), x[:, 1])


def test_arrays_by_the_inputs_names(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    np.save(folder / "x.npy", features())
    np.save(folder / "label.npy", np.arange(ROWS) % 7)
    result = run(folder, tmp_path / "out.parquet")
    assert result.column_names == ["row", "label", "y", "z"]
    np.testing.assert_array_equal(values(result, "row"), np.arange(ROWS))
    np.testing.assert_array_equal(values(result, "label"), np.arange(ROWS) % 7)
    np.testing.assert_allclose(values(result, "y"), features() @ WEIGHT)


def test_an_array_file_for_each_row(tmp_path):
    folder = tmp_path / "in"
    (folder / "deeper").mkdir(parents=True)
    for i, row in enumerate(features(5)):
        np.save(folder / ("deeper" if i > 2 else "") / f"{i}.npy", row)
    result = run(folder, tmp_path / "out.parquet")
    assert result.column("file").to_pylist() == ["0.npy", "1.npy", "2.npy", "deeper/3.npy", "deeper/4.npy"]
    np.testing.assert_allclose(values(result, "y"), features(5) @ WEIGHT)


@pytest.fixture
def images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "images"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    image.fromarray(pixels).save(folder / "a.png")
    image.fromarray(pixels[::-1]).save(folder / "b.bmp")
    return folder, np.stack([pixels, pixels[::-1]])


def test_images_are_scaled_and_normalised(images, tmp_path):
    folder, pixels = images
    options = batch.Images(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    result = run(folder, tmp_path / "out.parquet", image_model(["n", 3, 4, 6]), images=options)
    assert result.column("file").to_pylist() == ["a.png", "b.bmp"]
    expected = (pixels / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    np.testing.assert_allclose(values(result, "seen"), expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6)


def test_images_for_integers_stay_as_they_are(images, tmp_path):
    folder, pixels = images
    result = run(folder, tmp_path / "out.parquet", image_model(["n", None, None, 3], TensorProto.UINT8))
    np.testing.assert_array_equal(values(result, "seen"), pixels)


def test_images_get_the_size_that_the_model_fixes(images, tmp_path):
    folder, pixels = images
    result = run(folder, tmp_path / "out.parquet", image_model(["n", 1, 2, 3], TensorProto.UINT8))
    image = pytest.importorskip("PIL.Image")
    grey = [image.fromarray(one).convert("L").resize((3, 2), image.Resampling.BILINEAR) for one in pixels]
    np.testing.assert_array_equal(values(result, "seen"), np.stack([np.asarray(one)[None] for one in grey]))


def test_mistakes_with_images_are_told(images, tmp_path):
    folder, _ = images
    options = batch.Images(mean=(0.5, 0.4))
    with pytest.raises(onnx_torch.InputError, match="the mean must be one number, or one for each of 3 channels"):
        run(folder, tmp_path / "out.parquet", image_model(["n", 3, 4, 6]), images=options)
    with pytest.raises(onnx_torch.InputError, match="say the layout, NCHW or NHWC"):
        run(folder, tmp_path / "out.parquet", image_model(["n", "c", "h", "w"]))
    with pytest.raises(onnx_torch.InputError, match="has 7 channels"):
        run(folder, tmp_path / "out.parquet", image_model(["n", 7, 4, 6]), images=batch.Images(layout="NCHW"))


def test_images_of_other_sizes_go_one_by_one(images, tmp_path):
    image = pytest.importorskip("PIL.Image")
    folder, pixels = images
    image.fromarray(pixels[0, :2]).save(folder / "c.png")
    model = image_model([3, "h", "w"], TensorProto.UINT8)
    seen = run(folder, tmp_path / "out.parquet", model, batched=False).column("seen").to_pylist()
    assert [np.shape(row) for row in seen] == [(3, 4, 6), (3, 4, 6), (3, 2, 6)]
    np.testing.assert_array_equal(seen[2], pixels[0, :2].transpose(2, 0, 1))


# --- Batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1, 3, 8])
def test_a_fixed_batch_is_filled_up(first, table, tmp_path):
    result = run(table, tmp_path / "out.parquet", model(first))
    np.testing.assert_allclose(values(result, "y"), features() @ WEIGHT)


def test_flat_rows_take_the_shape_that_the_model_fixes(tmp_path):
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=0)]
    axes = numpy_helper.from_array(np.array([2], np.int64), "axes")
    x = tensor_info("x", element=TensorProto.FLOAT, shape=["n", 2, 3])
    np.save(tmp_path / "x.npy", np.arange(24, dtype=np.float32).reshape(4, 6))
    result = run(tmp_path / "x.npy", tmp_path / "out.parquet", model_of(nodes, [x], ["s"], initializer=[axes]))
    np.testing.assert_allclose(values(result, "s"), np.arange(24).reshape(4, 2, 3).sum(2))


def test_maps_are_map_columns(tmp_path):
    node = helper.make_node("ZipMap", ["x"], ["p"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"])
    x = tensor_info("x", element=TensorProto.FLOAT, shape=["n", 3])
    np.save(tmp_path / "x.npy", features(5))
    result = run(tmp_path / "x.npy", tmp_path / "out.parquet", model_of([node], [x], ["p"], 1, "ai.onnx.ml"))
    assert result.column("p").to_pylist()[4] == [("a", 12.0), ("b", 13.0), ("c", 14.0)]


def test_strings_in_and_out(tmp_path):
    node = helper.make_node("StringConcat", ["left", "right"], ["both"])
    infos = [tensor_info(name, element=TensorProto.STRING, shape=["n"]) for name in ("left", "right")]
    pq.write_table(pa.table({"left": ["a", "ü"], "right": ["x", "y"]}), tmp_path / "in.parquet")
    result = run(tmp_path / "in.parquet", tmp_path / "out.parquet", model_of([node], infos, ["both"]))
    assert result.to_pydict() == {"both": ["ax", "üy"]}


@pytest.mark.parametrize("element", ["BFLOAT16", "FLOAT16", "UINT64", "INT4", "BOOL"])
def test_every_type_has_a_column(element, tmp_path):
    node = helper.make_node("Cast", ["x"], ["c"], to=TensorProto.DataType.Value(element))
    x = tensor_info("x", element=TensorProto.FLOAT, shape=["n", 3])
    np.save(tmp_path / "x.npy", features(2))
    result = run(tmp_path / "x.npy", tmp_path / "out.parquet", model_of([node], [x], ["c"]))
    expected = features(2).astype(bool) if element == "BOOL" else features(2)
    np.testing.assert_array_equal(values(result, "c"), expected)


# --- Mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"columns": {"x": "features"}}, "no column 'features' for the input 'x'; the columns are .'key', 'x'."),
        ({"columns": {"q": "x"}}, "no input 'q' to feed"),
        ({"outputs": ["q"]}, "no output 'q'"),
        ({"outputs": {"y": "key"}}, "would replace the column 'key'"),
        ({"keep": ["q"]}, "no column 'q' to keep"),
        ({"columns": {"x": "key"}}, "rows 0 to 9 of row group 0 of .*a.parquet: the input 'x' takes rows of shape .3"),
        ({"model": image_model(["n", 3], TensorProto.INT64), "columns": {"pixels": "x"}}, "takes int64, .*holds float"),
        ({"batch_size": 0}, "at least 1"),
        ({"engine": "spark"}, '"auto", "local" or "ray"'),
    ],
)
def test_mistakes_are_told(options, message, table, tmp_path):
    with pytest.raises(onnx_torch.Error, match=message):
        run(table, tmp_path / "out.parquet", **{"part_rows": 16} | options)
    assert not (tmp_path / "out.parquet").exists()


def test_an_output_without_rows_is_told(table, tmp_path):
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0)]
    x = tensor_info("x", element=TensorProto.FLOAT, shape=["n", 3])
    with pytest.raises(onnx_torch.InputError, match=r"the output 's' is of shape \[\], and not a row for each"):
        run(table, tmp_path / "out.parquet", model_of(nodes, [x], ["s"]))


def test_nulls_are_told(tmp_path):
    pq.write_table(pa.table({"x": pa.array([[1.0, 2.0, 3.0], None])}), tmp_path / "in.parquet")
    with pytest.raises(onnx_torch.InputError, match="column 'x' holds nulls"):
        run(tmp_path / "in.parquet", tmp_path / "out.parquet")


def test_files_that_are_not_what_they_say_are_told(tmp_path):
    for name in ("a.parquet", "a.npy", "a.png"):
        (tmp_path / name).write_text("no")
        with pytest.raises(onnx_torch.InputError, match=f"{name} cannot be read"):
            run(tmp_path / name, tmp_path / "out.parquet", image_model(["n", 3, 4, 6]))
    with pytest.raises(onnx_torch.InputError, match=r"one kind.*Parquet, images|one kind.*images"):
        run(tmp_path, tmp_path / "out.parquet")


def test_an_output_is_not_overwritten_unasked(table, tmp_path):
    out = tmp_path / "out.parquet"
    out.write_text("mine")
    with pytest.raises(onnx_torch.InputError, match="exists already"):
        run(table, out)
    assert out.read_text() == "mine"
    run(table, out, overwrite=True)


# --- Work that is cut off ---------------------------------------------------------------------------------------------


class Stop(Exception):
    pass


def stop_at(rows):
    def progress(done, total):
        if done >= rows:
            raise Stop

    return progress


def test_work_goes_on_where_it_stopped(table, tmp_path):
    out = tmp_path / "out.parquet"
    with pytest.raises(Stop):
        run(table, out, part_rows=10, progress=stop_at(50))
    assert not out.exists()
    (next(tmp_path.glob(".out*/00000002.arrow"))).write_bytes(b"torn")
    seen = []
    options = {"workers": 0, "batch_size": 4, "part_rows": 10, "progress": lambda *numbers: seen.append(numbers)}
    summary = batch.predict(model(), table, out, **options)
    assert summary == batch.Summary(rows=ROWS, resumed=40, engine="local", workers=0)
    assert seen[0] == (40, ROWS) and seen[-1] == (ROWS, ROWS) and seen == sorted(seen)
    np.testing.assert_allclose(values(pq.read_table(out), "y"), features() @ WEIGHT)


def test_parts_of_other_work_are_not_taken(table, tmp_path):
    out = tmp_path / "out.parquet"
    with pytest.raises(Stop):
        run(table, out, part_rows=10, progress=stop_at(50))
    changed = model()
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * WEIGHT, "w"))
    result = run(table, out, changed, part_rows=10)
    np.testing.assert_allclose(values(result, "y"), features() @ (2 * WEIGHT))


def test_one_process_writes_an_output(table, tmp_path):
    def again(done, total):
        run(table, tmp_path / "out.parquet")

    with pytest.raises(onnx_torch.InputError, match="another process is writing"):
        run(table, tmp_path / "out.parquet", progress=again)


def test_a_killed_process_loses_and_doubles_nothing(table, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    killed = []

    def kill_one(done, total):
        children = multiprocessing.active_children()
        if not killed and 0 < done < total / 2 and children:
            killed.append(children[0].pid)
            os.kill(children[0].pid, signal.SIGKILL)

    out = tmp_path / "out.parquet"
    summary = batch.predict(path, table, out, engine="local", workers=2, batch_size=2, part_rows=2, progress=kill_one)
    assert killed and summary == batch.Summary(rows=ROWS, resumed=0, engine="local", workers=2)
    np.testing.assert_array_equal(values(pq.read_table(out), "key"), np.random.default_rng(0).permutation(ROWS))
    np.testing.assert_allclose(values(pq.read_table(out), "y"), features() @ WEIGHT)


@dataclass(frozen=True)
class DeadlyRows(ArrayRows):
    """Rows that no process survives."""

    def read(self, part, fed, kept):
        os._exit(1)


def test_processes_that_always_die_end_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_workers, "DEATHS", 2)  # each death takes a process
    np.save(tmp_path / "x.npy", features())
    source = DeadlyRows({"x": tmp_path / "x.npy"})
    job = batch_workers.Job(model().SerializeToString(), {}, source, None, None, ["row"], True, 4)
    with pytest.raises(onnx_torch.RunError, match=r"died 2 times, in or after rows 0 to 49 of .*x.npy. Memory may"):
        list(batch_workers.run_local(job, parts_of(source, 50), workers=1))


# --- The command ------------------------------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(onnx_torch_cli.app(), ["batch", *map(str, arguments)])


def test_the_command(table, tmp_path):
    onnx.save(model(), tmp_path / "model.onnx")
    columns = "--column", "x=x", "--output", "y=score", "--keep", "key"
    arguments = tmp_path / "model.onnx", table, "--to", tmp_path / "out.parquet", *columns, "--workers", 0
    done = command(*arguments)
    assert (done.exit_code, done.output) == (0, f"{tmp_path / 'out.parquet'}: 103 rows, by this process\n")
    result = pq.read_table(tmp_path / "out.parquet")
    assert result.column_names == ["key", "score"]
    np.testing.assert_allclose(values(result, "score"), features() @ WEIGHT)
    assert isinstance(command(*arguments).exception, onnx_torch.InputError)  # it exists; main() makes a message of it
    assert command(*arguments, "--overwrite").exit_code == 0


def test_the_command_with_scalar_columns_and_images(images, tmp_path):
    onnx.save(model(), tmp_path / "model.onnx")
    pq.write_table(pa.table({name: features(4)[:, i] for i, name in enumerate("abc")}), tmp_path / "in.parquet")
    given = [argument for name in "abc" for argument in ("--column", f"x={name}")]
    out = "--to", tmp_path / "out.parquet", "--workers", 0, "--overwrite"
    assert command(tmp_path / "model.onnx", tmp_path / "in.parquet", *given, *out).exit_code == 0
    np.testing.assert_array_equal(values(pq.read_table(tmp_path / "out.parquet"), "z"), features(4))

    onnx.save(image_model(["n", 3, "h", "w"]), tmp_path / "model.onnx")
    given = "--image-size", "4x6", "--mean", "0.5,0.5,0.5", "--std", "0.5", "--layout", "NCHW"
    assert command(tmp_path / "model.onnx", images[0], *given, *out).exit_code == 0
    expected = (images[1] / 255 - 0.5) / 0.5
    seen = values(pq.read_table(tmp_path / "out.parquet"), "seen")
    np.testing.assert_allclose(seen, expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--column", "x"], "'x' is not INPUT=COLUMN"),
        (["--image-size", "224"], "'224' is not HEIGHTxWIDTH"),
        (["--mean", "a"], "'a' is not a number"),
    ],
)
def test_mistakes_in_the_call(arguments, message, table, tmp_path):
    onnx.save(model(), tmp_path / "model.onnx")
    done = command(tmp_path / "model.onnx", table, "--to", tmp_path / "out.parquet", *arguments)
    assert done.exit_code == 2 and message in done.output


@pytest.mark.parametrize("quota, cpus", [("max", 4), ("250000", 3), ("20000", 1), ("800000", 4)])
def test_the_number_of_workers_follows_the_cgroup(quota, cpus, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    for name, text in {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{quota} 100000"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert batch._cpus(str(tmp_path)) == cpus
