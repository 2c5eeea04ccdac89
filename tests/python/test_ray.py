"""Models on Ray: a local cluster of two CPUs. Rows are compared by their keys, as Ray keeps no order."""

import os
import secrets
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_torch
from models import model_of, tensor_info
from onnx_torch.ray import Predictor, cpu_share, predict

WEIGHT = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
ROWS = 400


def features(rows=ROWS):
    return np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)


def model():
    """Makes a model: y = x @ WEIGHT."""
    x = tensor_info("x", element=TensorProto.FLOAT, shape=["batch", 3])
    weight = numpy_helper.from_array(WEIGHT, "w")
    return model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [x], ["y"], initializer=[weight])


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)  # the actors know this file's classes
    patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))  # Ray would write one to the home folder
    patch.setenv("RAY_worker_niceness", "0")  # else they wait for whatever else the machine does
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.use_datasource_v2 = False  # it would make one block of files as small as these, and one actor would get it
    yield ray
    ray.shutdown()
    patch.undo()


@pytest.fixture
def table(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    keys = np.random.default_rng(0).permutation(ROWS)
    folder = tmp_path / "rows"
    folder.mkdir()
    for i, part in enumerate(np.split(np.arange(ROWS), 4)):
        rows = {"key": keys[part], "features": list(features()[part])}
        pq.write_table(pa.table(rows), folder / f"{i}.parquet", row_group_size=25)
    return folder, keys


def check(rows, keys):
    """Checks that each key comes once, with the output that belongs to it."""
    found = dict(zip((row["key"] for row in rows), (row["y"] for row in rows), strict=True))
    assert len(rows) == len(found) == ROWS
    np.testing.assert_allclose([found[key] for key in keys], features() @ WEIGHT)


# --- Predictor --------------------------------------------------------------------------------------------------------


def test_a_batch_keeps_its_other_columns():
    batch = {"id": np.arange(4), "features": features(4).astype(np.float64)}
    made = Predictor(model(), "CPU", columns={"x": "features"}, outputs={"y": "score"})(batch)
    assert list(made) == ["id", "score"]
    np.testing.assert_allclose(made["score"], features(4) @ WEIGHT)


def test_maps_and_differing_rows_are_objects():
    zipped = helper.make_node("ZipMap", ["x"], ["p"], domain="ai.onnx.ml", classlabels_int64s=[7, 8, 9])
    x = tensor_info("x", element=TensorProto.FLOAT, shape=["n", 3])
    made = Predictor(model_of([zipped], [x], ["p"], 1, "ai.onnx.ml"), "CPU")({"x": features(2)})
    assert made["p"].tolist() == [{"7": 0.0, "8": 1.0, "9": 2.0}, {"7": 3.0, "8": 4.0, "9": 5.0}]
    nonzero = model_of([helper.make_node("NonZero", ["x"], ["n"])], [tensor_info("x", np.float32(0), ["n"])], ["n"])
    made = Predictor(nonzero, "CPU", batched=False)({"x": np.float32([[0, 1, 1], [1, 0, 0]])})
    assert [row.tolist() for row in made["n"]] == [[[1, 2]], [[0]]]


def test_a_missing_column_is_told():
    with pytest.raises(onnx_torch.InputError, match=r"no column 'x' for the input 'x'; the columns are .'id'."):
        Predictor(model(), "CPU")({"id": np.arange(4)})


@pytest.mark.parametrize("machines", [[1], [2], [3], [8], [64], [1, 1], [2, 2], [7, 7], [4, 1, 2], [8, 8, 8], [2] * 9])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 9, 64])
@pytest.mark.parametrize("chosen", [min, max])
def test_a_cpu_is_left_for_the_reader(machines, workers, chosen):
    """Ray may place the actors in any way, on the fullest machine or on the emptiest."""
    share = cpu_share(machines, workers)
    assert share < 1 or share == int(share)  # what Ray takes
    free = list(machines)
    for _ in range(workers):
        place = chosen((i for i in range(len(free)) if free[i] >= share), key=free.__getitem__)
        free[place] -= share
    assert max(free) >= 1


# --- Ray Data ---------------------------------------------------------------------------------------------------------


def test_as_many_actors_as_cores(ray, table, tmp_path):
    folder, keys = table
    onnx.save(model(), tmp_path / "model.onnx")
    rows = ray.data.read_parquet(str(folder), override_num_blocks=8)
    options = {"columns": {"x": "features"}, "batch_size": 16}
    check(predict(rows, tmp_path / "model.onnx", workers=2, **options).take_all(), keys)
    with pytest.raises(onnx_torch.InputError, match=r"no machine of the cluster a CPU to read.*num_cpus=0.5 would"):
        predict(rows, tmp_path / "model.onnx", workers=2, num_cpus=1, **options)


class Mortal(Predictor):
    """A predictor that dies once, when a key comes, and leaves a mark, so as to live the next time."""

    def __init__(self, model, mark, **options):
        super().__init__(model, **options)
        self._mark = mark

    def __call__(self, batch):
        if 200 in batch["key"] and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)


def test_a_killed_actor_loses_and_doubles_nothing(ray, table, tmp_path):
    folder, keys = table
    mark = tmp_path / "died"
    rows = ray.data.read_parquet(str(folder), override_num_blocks=8).map_batches(
        Mortal,
        fn_constructor_args=(model().SerializeToString(), mark),
        fn_constructor_kwargs={"columns": {"x": "features"}},
        compute=ray.data.ActorPoolStrategy(size=2),
        num_cpus=cpu_share([2], 2),
        batch_size=16,
        batch_format="numpy",
    )
    check(rows.take_all(), keys)
    assert mark.exists()


# --- The batch function with Ray --------------------------------------------------------------------------------------


def descendants(pid):
    """Lists the processes below one, with their command lines."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
    below = [child for child in parents if any(pid == ancestor for ancestor in ancestors(child, parents))]
    return {child: command(child) for child in below}


def ancestors(pid, parents):
    while pid in parents:
        pid = parents[pid]
        yield pid


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_batch_restores_the_order_after_a_kill(ray, table, tmp_path):
    folder, keys = table
    import pyarrow.parquet as pq

    from onnx_torch import batch

    killed = []

    def kill_one(done, total):
        if not killed and 0 < done < total / 2:
            actors = [pid for pid, name in descendants(os.getpid()).items() if name.startswith("ray::MapWorker")]
            os.kill(actors[0], signal.SIGKILL)
            killed.append(actors[0])

    out = tmp_path / "out.parquet"
    options = {"columns": {"x": "features"}, "workers": 2, "batch_size": 4, "part_rows": 4, "progress": kill_one}
    summary = batch.predict(model(), folder, out, **options)
    assert killed and summary == batch.Summary(rows=ROWS, resumed=0, engine="ray", workers=2)
    result = pq.read_table(out)
    np.testing.assert_array_equal(result.column("key"), keys)
    check(result.to_pylist(), keys)


def test_a_part_that_always_kills_its_actor_ends_the_work(ray, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    from onnx_torch._batch import workers as batch_workers
    from onnx_torch._batch.sources import ArrayRows, parts_of

    class Deadly(ArrayRows):
        def read(self, part, fed, kept):
            if part.number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().read(part, fed, kept)

    monkeypatch.setattr(batch_workers, "DEATHS", 2)  # each takes a process
    np.save(tmp_path / "x.npy", features())
    source = Deadly({"x": tmp_path / "x.npy"})
    options = {"device": "CPU", "threads": 1}
    job = batch_workers.Job(model().SerializeToString(), options, source, None, None, ["row"], True, 100)
    results = list(batch_workers.run_ray(job, parts_of(source, 100), workers=1))
    assert sorted(result.part for result in results) == [0, 1, 2, 3]
    ((part, error),) = [(result.part, result.error) for result in results if result.error]
    assert part == 1 and isinstance(error, onnx_torch.RunError)
    assert str(error).startswith("a worker process died 2 times, in rows 100 to 199 of ")


# --- Several machines -------------------------------------------------------------------------------------------------


@pytest.fixture
def two_machines(ray):
    """Starts a cluster of two machines with a CPU each, both this one. It ends the other cluster: last in this file."""
    from ray.cluster_utils import Cluster

    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()
    cluster.shutdown()


def test_an_actor_for_each_machine(two_machines, table, tmp_path):
    folder, keys = table
    onnx.save(model(), tmp_path / "model.onnx")
    rows = two_machines.data.read_parquet(str(folder), override_num_blocks=8)
    check(predict(rows, tmp_path / "model.onnx", workers=2, columns={"x": "features"}, batch_size=16).take_all(), keys)
    with pytest.raises(onnx_torch.InputError, match=r"the machines have 1, 1; num_cpus=0 would do"):
        predict(rows, tmp_path / "model.onnx", workers=2, num_cpus=0.5)
