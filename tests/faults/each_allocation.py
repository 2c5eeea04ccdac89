"""A program that lets allocations fail, one in each turn, while a model is loaded, prepared of its bytes, and run.

Run as `each_allocation.py MODEL FEEDS STEP`, with allocations.c preloaded: every STEP-th while it is prepared, each
while it is run. Whichever it is: an exception comes out, or nothing where it could be done without, and the next run is
right. Prints how many allocations there are, and how many ended in an exception.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np

import onnx_torch

path, feeds = sys.argv[1], dict(np.load(sys.argv[2], allow_pickle=True))
step = int(sys.argv[3])
fail = ctypes.CDLL(None).fail_allocation
fail.argtypes, fail.restype = [ctypes.c_long], ctypes.c_long

rep = onnx_torch.prepare(path)
expected = rep.run(feeds)
given = Path(path).read_bytes()
works = {
    "load": lambda: onnx_torch.prepare(path),
    "prepare": lambda: onnx_torch.prepare(given),
    "run": lambda: rep.run(feeds),
}


def check(results):
    for result, truth in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, truth)


for name, work in works.items():
    work()
    n, failures, left = 1, 0, 0
    while left == 0:
        fail(n)
        try:
            work()
        except (onnx_torch.Error, MemoryError):
            failures += 1
        left = fail(0)
        check(rep.run(feeds))
        n += 1 if name == "run" else step
    print(name, n, failures)
check(onnx_torch.prepare(path).run(feeds))
