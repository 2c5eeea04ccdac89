"""A program that lets reads of a file fail, or end early, one in each turn, while the file is loaded.

Run as `each_read.py FILE ENDING EARLY READER…`, with reads.c preloaded: FILE is what the readers are given, and ENDING
the end of the name of the file whose reads fail, or end early where EARLY is 1. Where a read fails, the package's own
error comes out, which says so. A session looks first whether a file is a saved model: where that read fails, it may as
well be as ever, as it may where a read ends early. Prints how many reads each reader makes, and how many of them ended
in an error.
"""

import ctypes
import sys

import numpy as np

import onnx_torch
from onnx_torch.compat.onnxruntime import AdapterFormat

path, ending, early = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
fail = ctypes.CDLL(None).fail_read
fail.argtypes, fail.restype = [ctypes.c_long, ctypes.c_char_p, ctypes.c_int], ctypes.c_long

WORKS = {
    "prepare": lambda: onnx_torch.prepare(path).run()[0],
    "extract": lambda: onnx_torch.prepare(onnx_torch.extract(path)).run()[0],
    "session": lambda: onnx_torch.InferenceSession(path).run(None, {})[0],
    "info": lambda: np.array(onnx_torch.info(path).parameters),
    "load": lambda: onnx_torch.load(path).run()[0],
    "adapter": lambda: AdapterFormat.read_adapter(path).get_parameters()["w"].numpy(),
}

for name in sys.argv[4:]:
    work = WORKS[name]
    expected = work()
    turns, failures = 0, 0
    while True:
        fail(turns + 1, ending, early)
        result, told = None, ""
        try:
            result = work()
        except onnx_torch.Error as error:
            failures += 1
            told = str(error)
        if fail(0, ending, early):
            break  # there are no more reads
        turns += 1
        if result is not None:
            np.testing.assert_array_equal(result, expected)
        is_said = "Input/output error" in told or name == "session"
        assert early or is_said, f"{name}, read {turns}: {told or 'nothing was told'}"
    np.testing.assert_array_equal(work(), expected)
    print(name, turns, failures)
