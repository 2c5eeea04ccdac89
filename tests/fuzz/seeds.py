"""Writes models to begin with: python tests/fuzz/seeds.py FOLDER.

They are the official node cases, with what their inputs are fed as initializers of the inputs' names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_torch.self_test.official import Case, node_cases

MOST_BYTES = 200_000  # larger models take long, and differ from smaller ones in nothing but their sizes


def with_feeds(case: Case) -> onnx.ModelProto:
    """The model, with an initializer for each input that is a tensor."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    inputs, _ = case.data_sets[0]
    for info, value in zip(model.graph.input, inputs, strict=True):
        if info.type.HasField("tensor_type") and value is not None:
            array = np.asarray(value)
            array = array.astype(object) if array.dtype.kind in "US" else array
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    return model


def seeds() -> Iterator[tuple[str, bytes]]:
    """Names and models."""
    for case in node_cases():
        content = with_feeds(case).SerializeToString()
        if len(content) <= MOST_BYTES:
            yield case.name, content


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, content in seeds():
        (folder / f"{name}.onnx").write_bytes(content)
        count += 1
    print(f"{count} models in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
