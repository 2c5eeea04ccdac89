"""Writes models and images to begin with: python tests/fuzz/seeds.py FOLDER.

The models are the official node cases, with what their inputs are fed as initializers of the inputs' names; the images
are those of ImageDecoder's cases.
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
    """Files by their names."""
    for case in node_cases():
        content = with_feeds(case).SerializeToString()
        if len(content) <= MOST_BYTES:
            yield f"models/{case.name}.onnx", content
        if case.model.graph.node[0].op_type == "ImageDecoder":
            (image,), _ = case.data_sets[0]
            yield f"images/{case.name}", image.tobytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    count = 0
    for name, content in seeds():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        count += 1
    print(f"{count} files in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
