"""The test cases that past releases of onnx shipped as files: each passes, or is known to be wrong, with a proof.

Four releases run by default; with ONNX_TORCH_PAST_RELEASES=all, all of them do.
"""

import os

import pytest
import torch

import onnx_torch.backend
from models import RANDOM, assert_plans_agree
from official import DEVICES, assert_same
from past_mistakes import MISTAKES, mistake_of
from past_releases import RELEASES, case_of, distinct, wheels_folder
from pretended_cuda import PretendedCuda

SOME = ["1.3.0", "1.8.1", "1.13.1", "1.18.0"]
ALL = os.environ.get("ONNX_TORCH_PAST_RELEASES") == "all"

FOLDERS = distinct(list(RELEASES) if ALL else SOME, wheels_folder())
WRONG = [folder for folder in FOLDERS if mistake_of(folder)]
RIGHT = [folder for folder in FOLDERS if not mistake_of(folder)]


def name_of(folder):
    return f"{folder.release}-{folder.name}"


def check(folder, device="CPU"):
    case = case_of(folder)
    prepared = onnx_torch.backend.prepare(case.model, device)
    for inputs, expected in case.data_sets:
        assert_same(expected, list(prepared.run(inputs)), case.rtol, case.atol)
        if device == "CPU" and not RANDOM.search(folder.name):
            assert_plans_agree(case.model, inputs)


def test_the_releases_are_whole():
    assert len(FOLDERS) == (5351 if ALL else 3074)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("folder", RIGHT, ids=name_of)
def test_past_case(folder, device):
    check(folder, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there, on which the cases run")
@pytest.mark.parametrize("folder", [folder for folder in RIGHT if "gradient" not in folder.name], ids=name_of)
def test_past_case_on_a_device_that_is_pretended(folder):
    with PretendedCuda() as cuda:
        try:
            check(folder, "CUDA:0")
        except Exception as error:
            raise AssertionError("; ".join(cuda.faults) or str(error)) from error


@pytest.mark.parametrize("folder", WRONG, ids=name_of)
def test_past_mistake(folder):
    """The proof holds, and the case does not pass: one that does is struck off the list."""
    mistake_of(folder).proof(folder)
    if mistake_of(folder).kind != "random":  # which may come out right by chance
        with pytest.raises((AssertionError, UnicodeDecodeError, onnx_torch.Error)):
            check(folder)


@pytest.mark.skipif(not ALL, reason="not all releases run")
def test_each_mistake_was_made():
    assert all(any(mistake_of(folder) is mistake for folder in FOLDERS) for mistake in MISTAKES)
