"""The pass `pools`: maxima and means of windows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnx_torch
from pass_models import check_equal, floats, graph_of, model

MAX_POOLS = {
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]": (2, 16, 9, 8),
    "kernel_shape = [5, 5], pads = [2, 2, 2, 2]": (1, 19, 6, 7),
    "kernel_shape = [2, 3], strides = [3, 1]": (1, 32, 7, 5),
    "kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1": (1, 16, 8, 8),
    "kernel_shape = [3, 2], dilations = [2, 3], pads = [1, 1, 1, 1]": (2, 16, 9, 8),
    "kernel_shape = [3, 3], strides = [2, 2], pads = [0, 0, 1, 1]": (1, 16, 8, 8),
    "kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 1, 1]": (1, 16, 1, 1),
    "kernel_shape = [3, 3]": (1, 3, 9, 9),
    "kernel_shape = [2, 2], dilations = [3, 3], pads = [1, 1, 1, 1]": (1, 16, 2, 2),
    "kernel_shape = [3, 3], strides = [1, 2], pads = [1, 1, 1, 1]": (2, 3, 5, 77),
    "kernel_shape = [2, 4], strides = [2, 5], ceil_mode = 1": (1, 3, 6, 131),
    "kernel_shape = [3], strides = [2], pads = [1, 1]": (2, 17, 70),
    "kernel_shape = [4], strides = [3], dilations = [2], ceil_mode = 1": (3, 5, 101),
    "kernel_shape = [3]": (2, 16, 34),
    "kernel_shape = [2, 2, 2], strides = [2, 2, 2]": (1, 16, 6, 8, 36),
    "kernel_shape = [3, 2, 3], dilations = [1, 2, 2], strides = [2, 1, 1], pads = [1, 0, 1, 1, 0, 1]": (2, 3, 5, 7, 22),
    "kernel_shape = [2, 3, 2], strides = [2, 2, 2], ceil_mode = 1": (2, 21, 5, 6, 7),
}


def pool_of(pool: str, sizes: tuple[int, ...], *, channels_last: bool) -> onnx.ModelProto:
    """Makes a model that pools an intermediate result, so that this has the layout that is asked for."""
    before = "c = Conv(x, w)" if channels_last else "c = Neg(x)"
    weights = {"w": (sizes[1], sizes[1], *[1 for _ in sizes[2:]])} if channels_last else {}
    return model(f"(float[{', '.join(map(str, sizes))}] x) => (float y) {{ {before}  y = {pool}(c) }}", **weights)


def check_equal_with_special_values(source: onnx.ModelProto, sizes: tuple[int, ...]) -> None:
    x = floats(*sizes)
    check_equal(source, [x])
    x[0, 1].flat[-sizes[-1]] = np.nan
    x[-1, 2] = -np.inf
    check_equal(source, [x])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("attributes", MAX_POOLS)
def test_max_pools(attributes: str, *, channels_last: bool):
    sizes = MAX_POOLS[attributes]
    source = pool_of(f"MaxPool<{attributes}>", sizes, channels_last=channels_last)
    assert graph_of(source, "pools").splitlines()[-1] == "onnx_torch::max_pool"
    check_equal_with_special_values(source, sizes)


AVERAGE_POOLS = {
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]": (2, 16, 9, 8),
    "kernel_shape = [5, 5], pads = [2, 2, 2, 2]": (1, 19, 6, 7),
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1": (1, 16, 8, 40),
    "kernel_shape = [3, 3], pads = [0, 0, 1, 1]": (1, 16, 8, 8),
    "kernel_shape = [2, 4], strides = [2, 5], ceil_mode = 1": (1, 3, 6, 131),
    "kernel_shape = [3, 2], strides = [1, 2]": (2, 3, 5, 77),
    "kernel_shape = [3], strides = [2], pads = [1, 1]": (2, 17, 70),
    "kernel_shape = [4], strides = [3], pads = [2, 2], ceil_mode = 1": (3, 5, 101),
    "kernel_shape = [2, 2, 2], strides = [2, 2, 2]": (1, 16, 6, 8, 36),
    "kernel_shape = [2, 3, 2], strides = [2, 2, 2], pads = [1, 1, 1, 1, 1, 1], ceil_mode = 1": (2, 21, 5, 6, 7),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("attributes", AVERAGE_POOLS)
def test_average_pools(attributes: str, count_include_pad: int, *, channels_last: bool):
    sizes = AVERAGE_POOLS[attributes]
    pool = f"AveragePool<{attributes}, count_include_pad = {count_include_pad}>"
    source = pool_of(pool, sizes, channels_last=channels_last)
    assert "onnx_torch::average_pool" in graph_of(source, "pools").splitlines()
    check_equal_with_special_values(source, sizes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_average_pools_of_other_sizes_and_types(rank: int, dtype: type):
    element = "double" if dtype is np.float64 else "float"
    source = model(
        f"({element}[N, C{', D' * rank}] x) => ({element} y) {{ y = AveragePool<kernel_shape = {[3] * rank}>(x) }}"
    )
    for sizes in [(2, 3), (0, 3), (1, 17)]:
        check_equal(source, [floats(*sizes, *[5] * rank).astype(dtype)])
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match="AveragePool"):
            onnx_torch.prepare(source, **options).run([floats(1, 2, *[2] * rank).astype(dtype)])


def test_max_pools_of_other_sizes_types_and_layouts():
    source = model(
        "(float[N, 16, H, W] x) => (float y) { c = Conv(x, w)  y = MaxPool<kernel_shape = [3, 3]>(c) }",
        w=(16, 16, 1, 1),
    )
    for sizes in [(1, 16, 5, 5), (3, 16, 3, 9), (0, 16, 5, 5), (1, 16, 5, 5)]:
        check_equal(source, [floats(*sizes)])
    for options in [{}, {"optimize": False}]:
        with pytest.raises(onnx_torch.RunError, match="MaxPool"):
            onnx_torch.prepare(source, **options).run([floats(1, 16, 2, 5)])
    source = model("(double[1, 16, 5, 5] x) => (double[N, C, H, W] y) { y = MaxPool<kernel_shape = [3, 3]>(x) }")
    check_equal(source, [floats(1, 16, 5, 5).astype(np.float64)])
    source = model(
        "(float[1, 5, 5, 16] x) => (float y) "
        "{ c = Transpose<perm = [0, 3, 1, 2]>(x)  y = MaxPool<kernel_shape = [3, 3]>(c) }"
    )
    check_equal(source, [floats(1, 5, 5, 16)])


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pools_of_other_types(rank: int, dtype: type):
    element = "double" if dtype is np.float64 else "float16"
    source = model(
        f"({element}[N, C{', D' * rank}] x) => ({element} y) {{ y = MaxPool<kernel_shape = {[2] * rank}>(x) }}"
    )
    for sizes in [(2, 3), (0, 3), (1, 17)]:
        check_equal(source, [floats(*sizes, *[5] * rank).astype(dtype)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("width", [6, 31, 140])
def test_max_pools_of_bytes(width: int, dtype: type):
    element = np.dtype(dtype).name
    source = model(
        f"({element}[2, 3, 7, {width}] x) => ({element} y) "
        "{ y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x) }"
    )
    assert "onnx_torch::max_pool" in graph_of(source, "pools").splitlines()
    check_equal(source, [np.random.default_rng(0).integers(0, 256, (2, 3, 7, width)).astype(np.uint8).view(dtype)])
