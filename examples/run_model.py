"""Run any ONNX model and print its outputs.

    python examples/run_model.py MODEL.onnx [--input NAME=FILE.npy ...] [--device CPU]

An input that is not given gets seeded random data, with every open dimension set to 1.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnx_torch


def given_inputs(pairs: list[str]) -> dict[str, np.ndarray]:
    values = {}
    for pair in pairs:
        name, separator, path = pair.rpartition("=")
        if not separator:
            sys.exit(f"--input {pair}: expected NAME=FILE.npy")
        try:
            values[name] = np.load(path)
        except (OSError, ValueError) as error:
            sys.exit(f"--input {pair}: {error}")
    return values


def required_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    initialized = {tensor.name for tensor in model.graph.initializer}
    initialized |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return [value for value in model.graph.input if value.name not in initialized]


def random_value(type_: onnx.TypeProto, random: np.random.Generator):
    """A random value of an input's type. A sequence has two elements, an optional is there."""
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return [random_value(type_.sequence_type.elem_type, random) for _ in range(2)]
    if kind == "optional_type":
        return random_value(type_.optional_type.elem_type, random)
    if kind == "tensor_type":
        return random_tensor(type_.tensor_type, random)
    sys.exit(f"An input of {kind} cannot be made up; run this model from Python.")


def random_tensor(tensor: onnx.TypeProto.Tensor, random: np.random.Generator) -> np.ndarray:
    """Normal floats, small whole numbers, coin flips or words."""
    shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if tensor.elem_type == TensorProto.STRING:
        data = random.choice(["a", "word", "or two"], shape)
    elif dtype == np.bool_:
        data = random.integers(0, 2, shape)
    elif np.issubdtype(dtype, np.integer):
        data = random.integers(0, 10, shape)
    else:
        data = random.standard_normal(shape)
    return np.asarray(data).astype(dtype)


def describe(value, indent: str = "  ") -> str:
    """A value's type, shape and first elements; a sequence's elements each on its own line."""
    if value is None:
        return "absent"
    if isinstance(value, dict):
        return f"map of {len(value)}: {dict(list(value.items())[:4])}"
    if isinstance(value, list):
        lines = [f"{indent}  [{i}] {describe(element, indent + '  ')}" for i, element in enumerate(value[:4])]
        return "\n".join([f"sequence of {len(value)}", *lines])
    array = np.asarray(value)
    kind = "string" if array.dtype.kind in "OU" else array.dtype
    first = ", ".join(str(element) for element in array.ravel()[:6])
    return f"{kind} {list(array.shape)}  {first}{', …' if array.size > 6 else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy")
    parser.add_argument("--device", default="CPU", help="CPU (default) or CUDA:0")
    args = parser.parse_args()
    if not args.model.is_file():
        sys.exit(f"{args.model}: no such file")

    # The inputs' names and types are all that is read here; the backend reads the file itself, its external data too.
    model = onnx.load(args.model, load_external_data=False)
    inputs = given_inputs(args.input)
    random = np.random.default_rng(0)
    print("Inputs")
    for value in required_inputs(model):
        origin = "given"
        if value.name not in inputs:
            inputs[value.name] = random_value(value.type, random)
            origin = "random, seed 0"
        print(f"  {value.name} ({origin}): {describe(inputs[value.name])}")

    try:
        start = time.perf_counter()
        rep = onnx_torch.backend.prepare(str(args.model), args.device)
        prepared = time.perf_counter()
        outputs = rep.run(inputs)
        done = time.perf_counter()
    except onnx_torch.Error as error:
        sys.exit(f"{type(error).__name__}: {error}")

    print("Outputs")
    for value, output in zip(model.graph.output, outputs):
        print(f"  {value.name}: {describe(output)}")
    print(f"Prepared in {prepared - start:.3f} s, run in {done - prepared:.3f} s on {args.device}")


if __name__ == "__main__":
    main()
