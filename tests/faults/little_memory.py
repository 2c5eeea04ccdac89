"""A program that prepares and runs a model while the process can have ever less memory, down to none.

Run as `little_memory.py MODEL FEEDS`. An exception comes out, or the result is right, and once there is memory again
all is. Prints how many turns there were, and how many ended in an exception.
"""

import ctypes
import resource
import sys

import numpy as np

import onnx_torch

C = ctypes.CDLL(None)
C.malloc.argtypes, C.malloc.restype, C.free.argtypes = [ctypes.c_size_t], ctypes.c_void_p, [ctypes.c_void_p]
SIZES = [1 << 20, 1 << 16, 1 << 12, 1 << 8, 1 << 5]  # of the blocks that take all memory there is
MOST = 1 << 24  # the most bytes that are left

path, feeds = sys.argv[1], dict(np.load(sys.argv[2], allow_pickle=True))
rep = onnx_torch.prepare(path)
expected = rep.run(feeds)
blocks = (ctypes.c_void_p * (1 << 22))()


def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def limit(bytes):
    resource.setrlimit(resource.RLIMIT_AS, (bytes, resource.RLIM_INFINITY))


def leave(bytes):
    """Takes all memory that the process has, and lets it have so much more; returns how many blocks it holds."""
    now = held()
    limit(now)
    count = 0
    for size in SIZES:
        while block := C.malloc(size):
            blocks[count] = block
            count += 1
    limit(now + bytes)
    return count


def give_back(count):
    limit(resource.RLIM_INFINITY)
    for i in range(count):
        C.free(blocks[i])


def check(results):
    for result, truth in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, truth)


turns, failures, left = 0, 0, MOST
while left > 1 << 11:
    results = []
    count = leave(left)
    try:
        results.append(onnx_torch.prepare(path).run(feeds))
        results.append(rep.run(feeds))
    except (onnx_torch.Error, MemoryError):
        failures += 1
    give_back(count)
    turns += 1
    for result in results:
        check(result)
    check(rep.run(feeds))
    left = left * 6 // 7
print(turns, failures)
