"""Single operators, here and in onnxruntime: python -m benchmarks.operators [NAME…] [--threads 1] [--rounds 7].

Each is a model of one node, most of a million elements, whose inputs are random. Each engine runs in a process of its
own, in turns. Of a row that says so, onnxruntime takes less than 0.8 of the time that is taken here.
"""

from __future__ import annotations

import argparse
import math
import re

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from .turns import Refused, Run, Turns

SLOW = 0.8  # a lower ratio is slow

UNARY = """Abs Atan Celu Elu Erf Exp Gelu HardSigmoid HardSwish IsNaN LeakyRelu Log Mish Neg Reciprocal Round Selu
Sigmoid Sign Sin Softplus Softsign Sqrt Tanh ThresholdedRelu"""
REDUCTIONS = "ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceProd ReduceSum"

# Inputs with names in capitals are constants. Integers are below the number in their name, or 100, and floats are
# positive where their name ends in a p.
CASES = {
    "BatchNormalization": "(float[1,64,64,64] x, float[64] S, float[64] B, float[64] M, float[64] VP) => (y)"
    " { y = BatchNormalization(x, S, B, M, VP) }",
    "GroupNormalization": "(float[1,64,64,64] x, float[64] S, float[64] B) => (y)"
    " { y = GroupNormalization<num_groups = 8>(x, S, B) }",
    "InstanceNormalization": "(float[1,64,128,128] x, float[64] S, float[64] B) => (y)"
    " { y = InstanceNormalization(x, S, B) }",
    "LayerNormalization": "(float[64,64,256] x, float[256] S, float[256] B) => (y) { y = LayerNormalization(x, S, B) }",
    "LpNormalization": "(float[1000,1000] x) => (y) { y = LpNormalization(x) }",
    "LRN": "(float[1,64,128,128] x) => (y) { y = LRN<size = 5>(x) }",
    "Softmax, channels": "(float[1,21,128,128] x) => (y) { y = Softmax<axis = 1>(x) }",
    "LogSoftmax": "(float[128,1000] x) => (y) { y = LogSoftmax(x) }",
    "Hardmax": "(float[1000,1000] x) => (y) { y = Hardmax(x) }",
    **{operator: f"(float[1000,1000] xp) => (y) {{ y = {operator}(xp) }}" for operator in UNARY.split()},
    "PRelu": "(float[1,64,64,64] x, float[64,1,1] S) => (y) { y = PRelu(x, S) }",
    **{
        f"{operator}": f"(float[1000,1000] xp, float[1000,1000] z) => (y) {{ y = {operator}(xp, z) }}"
        for operator in "Add Less Max Mul Pow".split()
    },
    **{
        f"{operator}, int64": f"(int64[1000,1000] x, int64[1000,1000] z) => (y) {{ y = {operator}(x, z) }}"
        for operator in "BitwiseAnd Equal Mul".split()
    },
    "BitShift, uint32": "(uint32[1000,1000] x, uint32[1000,1000] z_8) => (y)"
    ' { y = BitShift<direction = "RIGHT">(x, z_8) }',
    "Where": "(bool[1000,1000] c, float[1000,1000] x, float[1000,1000] z) => (y) { y = Where(c, x, z) }",
    **{
        f"Cast, {x} to {to.lower()}": f"({x}[1000,1000] x) => (y)"
        f" {{ y = Cast<to = {onnx.TensorProto.DataType.Value(to)}>(x) }}"
        for x, to in [
            ("float", "UINT8"),
            ("float", "INT64"),
            ("float", "FLOAT16"),
            ("float", "BOOL"),
            ("uint8", "FLOAT"),
            ("int32", "INT64"),
            ("int64", "FLOAT"),
            ("bool", "FLOAT"),
        ]
    },
    "QuantizeLinear, rows": "(float[1000,1000] x, float[1000] SP, int8[1000] Z) => (y)"
    " { y = QuantizeLinear<axis = 0>(x, SP, Z) }",
    "QuantizeLinear, columns": "(float[1000,1000] x, float[1000] SP, int8[1000] Z) => (y)"
    " { y = QuantizeLinear<axis = 1>(x, SP, Z) }",
    "DynamicQuantizeLinear": "(float[1000,1000] x) => (y, s, z) { y, s, z = DynamicQuantizeLinear(x) }",
    **{
        f"{operator}, {axis}": f"(float[1000,1000] x) => (y) <int64[1] n = {{{number}}}> {{ y = {operator}(x, n) }}"
        for operator in REDUCTIONS.split()
        for number, axis in enumerate(["columns", "rows"])
    },
    "ArgMax, channels": "(float[1,21,256,256] x) => (y) { y = ArgMax<axis = 1>(x) }",
    "CumSum, columns": "(float[1000,1000] x) => (y) <int64 axis = {0}> { y = CumSum(x, axis) }",
    "CumSum, rows": "(float[1000,1000] x) => (y) <int64 axis = {1}> { y = CumSum(x, axis) }",
    "TopK": "(float[1000,1000] x) => (y, i) <int64[1] k = {10}> { y, i = TopK(x, k) }",
    "Conv, first": "(float[1,3,224,224] x, float[32,3,3,3] W) => (y)"
    " { y = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, W) }",
    "Conv, 3 x 3": "(float[1,64,56,56] x, float[64,64,3,3] W) => (y) { y = Conv<pads = [1, 1, 1, 1]>(x, W) }",
    "Conv, 1 x 1": "(float[1,64,56,56] x, float[128,64,1,1] W) => (y) { y = Conv(x, W) }",
    "Conv, depthwise": "(float[1,96,56,56] x, float[96,1,3,3] W) => (y)"
    " { y = Conv<group = 96, pads = [1, 1, 1, 1]>(x, W) }",
    "Conv, depthwise 7 x 7": "(float[1,96,56,56] x, float[96,1,7,7] W) => (y)"
    " { y = Conv<group = 96, pads = [3, 3, 3, 3]>(x, W) }",
    "Conv, 1D": "(float[1,64,1000] x, float[64,64,5] W) => (y) { y = Conv<pads = [2, 2]>(x, W) }",
    "Conv, 3D": "(float[1,16,16,32,32] x, float[16,16,3,3,3] W) => (y) { y = Conv<pads = [1, 1, 1, 1, 1, 1]>(x, W) }",
    "ConvTranspose": "(float[1,64,32,32] x, float[64,32,4,4] W) => (y)"
    " { y = ConvTranspose<pads = [1, 1, 1, 1], strides = [2, 2]>(x, W) }",
    "MaxPool": "(float[1,64,112,112] x) => (y)"
    " { y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(x) }",
    "AveragePool": "(float[1,64,112,112] x) => (y) { y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x) }",
    "GlobalAveragePool": "(float[1,256,32,32] x) => (y) { y = GlobalAveragePool(x) }",
    "LpPool": "(float[1,32,64,64] x) => (y) { y = LpPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }",
    "MatMul": "(float[12,128,64] x, float[12,64,128] z) => (y) { y = MatMul(x, z) }",
    "MatMul, a row": "(float[1,1024] x, float[1024,1024] W) => (y) { y = MatMul(x, W) }",
    "Gemm": "(float[128,256] x, float[256,256] W, float[256] B) => (y) { y = Gemm(x, W, B) }",
    "Einsum": '(float[1,128,12,64] x, float[1,128,12,64] z) => (y) { y = Einsum<equation = "bqhd,bkhd->bhqk">(x, z) }',
    "Det": "(float[1000,8,8] x) => (y) { y = Det(x) }",
    "LSTM": "(float[50,1,64] x, float[1,256,64] W, float[1,256,64] R, float[1,512] B) => (y)"
    " { y = LSTM<hidden_size = 64>(x, W, R, B) }",
    "GRU": "(float[50,1,128] x, float[1,384,128] W, float[1,384,128] R, float[1,768] B) => (y)"
    " { y = GRU<hidden_size = 128, linear_before_reset = 1>(x, W, R, B) }",
    "Gather": "(float[30000,256] T, int64[1,512] i_30000) => (y) { y = Gather(T, i_30000) }",
    "GatherElements, rows": "(float[1000,1000] x, int64[1000,1000] i_1000) => (y)"
    " { y = GatherElements<axis = 1>(x, i_1000) }",
    "GatherElements, columns": "(float[1000,256] x, int64[500,256] i_1000) => (y)"
    " { y = GatherElements<axis = 0>(x, i_1000) }",
    "GatherND": "(float[64,64,64] x, int64[2000,2] i_64) => (y) { y = GatherND(x, i_64) }",
    "ScatterElements": "(float[1000,1000] x, int64[1000,100] i_1000, float[1000,100] u) => (y)"
    " { y = ScatterElements<axis = 1>(x, i_1000, u) }",
    "ScatterND": "(float[1000,1000] x, int64[500,1] i_1000, float[500,1000] u) => (y) { y = ScatterND(x, i_1000, u) }",
    "Compress": "(float[1000,1000] x, bool[1000] c) => (y) { y = Compress<axis = 0>(x, c) }",
    "NonZero": "(bool[1000,1000] x) => (y) { y = NonZero(x) }",
    "Unique": "(int64[100000] x_1000) => (y) { y = Unique(x_1000) }",
    "NonMaxSuppression": "(float[1,1000,4] xp, float[1,10,1000] sp) => (y) <int64 most = {50}, float overlap = {0.5},"
    " float score = {0.3}> { y = NonMaxSuppression(xp, sp, most, overlap, score) }",
    "OneHot": "(int64[10000] i_100) => (y) <int64 depth = {100}, float[2] values = {0, 1}>"
    " { y = OneHot(i_100, depth, values) }",
    "Transpose": "(float[1000,1000] x) => (y) { y = Transpose<perm = [1, 0]>(x) }",
    "Transpose, heads": "(float[1,128,12,64] x) => (y) { y = Transpose<perm = [0, 2, 1, 3]>(x) }",
    "Transpose, channels last": "(float[1,64,56,56] x) => (y) { y = Transpose<perm = [0, 2, 3, 1]>(x) }",
    "Concat": "(float[500,1000] x, float[500,1000] z) => (y) { y = Concat<axis = 1>(x, z) }",
    "Split": "(float[1000,1000] x) => (a, b, c, d) { a, b, c, d = Split<axis = 1, num_outputs = 4>(x) }",
    "Slice, steps": "(float[1000,1000] x) => (y) <int64[1] begin = {0}, int64[1] end = {1000}, int64[1] axis = {1},"
    " int64[1] step = {2}> { y = Slice(x, begin, end, axis, step) }",
    "Tile": "(float[1,64,1,64] x) => (y) <int64[4] n = {1, 1, 64, 1}> { y = Tile(x, n) }",
    "Expand": "(float[1000,1] x) => (y) <int64[2] n = {1000, 1000}> { y = Expand(x, n) }",
    "Pad": "(float[1,32,128,128] x) => (y) <int64[8] n = {0, 0, 3, 3, 0, 0, 3, 3}> { y = Pad(x, n) }",
    "Pad, reflect": "(float[1,32,128,128] x) => (y) <int64[8] n = {0, 0, 3, 3, 0, 0, 3, 3}>"
    ' { y = Pad<mode = "reflect">(x, n) }',
    "Trilu": "(float[1000,1000] x) => (y) { y = Trilu(x) }",
    "EyeLike": "(float[1000,1000] x) => (y) { y = EyeLike(x) }",
    "Range": "() => (y) <int64 a = {0}, int64 d = {1}> { n = Constant<value_int = 1000000>() y = Range(a, n, d) }",
    "ReverseSequence": "(float[100,100,100] x, int64[100] n_99) => (y) { y = ReverseSequence(x, n_99) }",
    "DepthToSpace": "(float[1,64,128,128] x) => (y) { y = DepthToSpace<blocksize = 2>(x) }",
    "SpaceToDepth": "(float[1,16,256,256] x) => (y) { y = SpaceToDepth<blocksize = 2>(x) }",
    "Resize, nearest": "(float[1,64,40,40] x) => (y) <float[4] n = {1, 1, 2, 2}>"
    ' { y = Resize<mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric">(x, , n) }',
    "Resize, linear": "(float[1,32,64,64] x) => (y) <float[4] n = {1, 1, 2, 2}>"
    ' { y = Resize<mode = "linear">(x, , n) }',
    "Resize, cubic": '(float[1,16,64,64] x) => (y) <float[4] n = {1, 1, 2, 2}> { y = Resize<mode = "cubic">(x, , n) }',
    "GridSample": "(float[1,16,64,64] x, float[1,64,64,2] z) => (y) { y = GridSample(x, z) }",
    "DFT": "(float[16,1024,1] x) => (y) <int64 axis = {1}> { y = DFT(x, , axis) }",
    "STFT": "(float[1,16000,1] x, float[400] W) => (y) <int64 step = {160}> { y = STFT(x, step, W) }",
}


def values(name: str, type_: onnx.TypeProto.Tensor, rng: np.random.Generator) -> np.ndarray:
    """Draws random elements for an input, or a constant."""
    sizes = [dim.dim_value for dim in type_.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(type_.elem_type)
    if dtype.kind == "f":
        numbers = rng.standard_normal(sizes)
        return (abs(numbers) + 0.1 if name.lower().endswith("p") else numbers).astype(dtype)
    if dtype.kind == "b":
        return rng.random(sizes) < 0.5
    most = re.search(r"_(\d+)$", name)
    return rng.integers(0, int(most[1]) if most else 100, sizes).astype(dtype)


def model_of(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Makes the model of a case, and what it is fed."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> operators {CASES[name]}')
    rng, fed = np.random.default_rng(0), {}
    given = {value.name for value in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in given]
    del model.graph.input[:]
    for value in inputs:
        array = values(value.name, value.type.tensor_type, rng)
        if value.name.isupper():
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            model.graph.input.append(value)
            fed[value.name] = array
    return model, fed


def made(engine: str, name: str, threads: int) -> Run:
    """Gives a function that runs a case in an engine."""
    model, fed = model_of(name)
    if engine == "onnx_torch":
        import onnx_torch

        rep = onnx_torch.prepare(model, threads=threads)
        return lambda: rep.run(fed)[0]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda: np.asarray(session.run(None, fed)[0])


def main() -> None:
    """Prints a row for each case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="those that begin so (default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    names = [name for name in CASES if not arguments.names or name.startswith(tuple(arguments.names))]
    print("| operator | onnxruntime, µs | onnx_torch, µs | ratio | |\n|---|---|---|---|---|")
    ratios = []
    with Turns(made, arguments.threads) as turns:
        for name in names:
            try:
                turns.take(name)
            except Refused as refused:
                print(f"| {name} | | | | {refused} |", flush=True)
                continue
            theirs, ours, ratio = turns.times(arguments.rounds)
            ratios.append(ratio)
            slow = "slow" if ratio < SLOW else ""
            print(f"| {name} | {theirs * 1e6:.0f} | {ours * 1e6:.0f} | {ratio:.2f} | {slow} |", flush=True)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        at_least = sum(ratio >= SLOW for ratio in ratios)
        print(f"\n{len(ratios)} operators: {mean:.2f} in the mean, {at_least} at {SLOW} or more")


if __name__ == "__main__":
    main()
