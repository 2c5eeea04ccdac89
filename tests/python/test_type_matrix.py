"""The type matrix, each cell anew, and its page, which is made of what `./dev matrix` records."""

import collections
import functools

import onnx
import pytest
import torch

pytest.importorskip("onnxruntime")

from official import DEVICES
from onnx_torch import prepare
from pretended_cuda import PretendedCuda
from type_matrix import page, results
from type_matrix.cells import Cell, all_cells, contrib_cells, schemas, translated_contrib_schemas
from type_matrix.compare import assert_equal, epsilon
from type_matrix.engines import Declined
from type_matrix.oracles import ask
from type_matrix.rules import DRAWN, left_out
from type_matrix.run import Result, run_cell
from type_matrix.sample import sample
from type_matrix.templates import cases
from type_matrix.wrong_oracles import WRONG, concerns, text_of


@pytest.fixture(scope="module")
def recorded():
    return results.load()["CPU"]


def test_the_cells_are_those_of_the_schemas():
    allowed = [c.allowed_type_strs for s in onnx.defs.get_all_schemas_with_history() for c in s.type_constraints]
    assert len(all_cells()) == len(set(all_cells())) == sum(map(len, allowed))


def test_every_cell_is_recorded(recorded):
    assert set(recorded) == {*all_cells(), *contrib_cells()}, "run ./dev matrix --only onnxruntime"


def test_the_page_is_up_to_date():
    assert page.PATH.read_text() == page.page(), "run ./dev matrix"


def test_cells_may_be_recorded_one_by_one(recorded, monkeypatch, tmp_path):
    some = {cell: outcome for number, (cell, outcome) in enumerate(recorded.items()) if number % 3}
    monkeypatch.setattr(results, "PATH", tmp_path / "results.json")
    results.save({"CPU": some})
    assert results.load() == {"CPU": some}


SAMPLE = collections.defaultdict(list)
for _cell in [*sample(all_cells()), *sample(contrib_cells())]:
    SAMPLE[_cell.domain, _cell.op].append(_cell)


def test_the_sample_has_every_version():
    have = {(cell.domain, cell.op, cell.version) for cells in SAMPLE.values() for cell in cells}
    every = schemas() | translated_contrib_schemas()
    assert have == {key for key, schema in every.items() if schema.type_constraints}


CELLS = collections.defaultdict(list)
for _cell in [*all_cells(), *contrib_cells()]:
    CELLS[_cell.domain, _cell.op].append(_cell)


run_once = functools.cache(run_cell)


def is_right(result: Result) -> bool:
    """A cell equals an oracle, or is likely where it is drawn, or rules.py has the reason why it has no model."""
    if result.outcome == "left out":
        return result.detail == left_out(result.cell)
    return result.outcome in results.COMPARED or (result.outcome == "run only" and result.cell.op in DRAWN)


@pytest.mark.parametrize("key", sorted(CELLS), ids=lambda key: ".".join(filter(None, key)))
def test_each_cell_is_right(key):
    wrong = [result for result in map(run_once, CELLS[key]) if not is_right(result)]
    assert not {str(result.cell): (result.outcome, result.detail) for result in wrong}


def test_only_equal_likely_and_left_out_cells_are_right():
    names = ("Add", 14, "T"), ("Multinomial", 22, "T1"), ("Tile", 1, "T1")
    add, draw, tile = (Cell("", *name, "tensor(float)") for name in names)
    assert is_right(Result(add, "onnxruntime")) and is_right(Result(draw, "run only"))
    assert is_right(Result(tile, "left out", left_out(tile)))
    for outcome in ("failed", "refused", "run only", "left out"):
        assert not is_right(Result(add, outcome))
    assert not is_right(Result(draw, "failed")) and not is_right(Result(draw, "refused"))


def test_the_record_is_what_is_found(recorded):
    """Which of the oracles a cell equals first may depend on the CPU."""

    def kind(outcome):
        return "compared" if outcome in results.COMPARED else outcome

    found = {cell: run_once(cell).outcome for cells in CELLS.values() for cell in cells}
    other = {str(cell): outcome for cell, outcome in found.items() if kind(outcome) != kind(recorded.get(cell))}
    assert not other, "if this is meant, run ./dev matrix"


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("key", sorted(SAMPLE), ids=lambda key: ".".join(filter(None, key)))
def test_sampled_cells_on_another_device(key, device):
    found = [run_cell(cell, device) for cell in SAMPLE[key]]
    assert not {str(r.cell): r.detail for r in found if r.outcome in ("failed", "refused")}


pretended = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there, on which the sample runs")
TRAINING = "ai.onnx.preview.training"  # whose autograd asks for the device's stream


@pretended
@pytest.mark.parametrize(
    "key", [key for key in sorted(SAMPLE) if key[0] != TRAINING], ids=lambda key: ".".join(filter(None, key))
)
def test_sampled_cells_on_a_device_that_is_pretended(key):
    with PretendedCuda():
        found = [run_cell(cell, "CUDA:0") for cell in SAMPLE[key]]
    lacking = [r for r in found if "kernels that are not there" in r.detail]  # in a build without nvcc
    assert not {str(r.cell): r.detail for r in found if r.outcome in ("failed", "refused") and r not in lacking}


@pretended
def test_every_cell_finds_its_kernels_on_a_device_that_is_pretended():
    failed = {}
    for cell in [*all_cells(), *contrib_cells()]:
        if cell.domain == TRAINING or left_out(cell):
            continue
        case = next(cases(cell))
        with PretendedCuda():
            try:
                prepare(case.model, "CUDA:0").run(case.inputs)
            except Exception as error:
                if "kernels that are not there" not in str(error):  # as they are in a build without nvcc
                    failed[str(cell)] = str(error)
    assert not failed


@pytest.mark.parametrize("row", WRONG, ids=lambda row: f"{row.cells} {row.oracle}")
def test_a_wrong_oracle_contradicts_the_text(row):
    concerned = [cell for cell in all_cells() if concerns(row, cell)]
    assert concerned
    for cell in concerned:
        assert row.quote in text_of(cell), cell


def test_another_number_is_not_equal():
    """The comparison can fail: an output of Abs that is off by six units in the last place, one too long, ..."""
    case = next(cases(Cell("", "Abs", 13, "T", "tensor(float)")))
    (expected,) = ask("official case", case)
    eps = epsilon(case.output_types)
    assert_equal([expected], [expected], eps)
    for other in (expected + expected.max() * 6 * eps, expected[:1], -expected):
        with pytest.raises(AssertionError):
            assert_equal([other], [expected], eps)


def test_an_oracle_that_only_moves_elements_refuses_arithmetic():
    for op, version in (("Neg", 13), ("Mean", 13), ("ReduceMean", 18), ("CumSum", 14)):
        with pytest.raises(Declined):
            ask("moved", next(cases(Cell("", op, version, "T", "tensor(double)"))))
