"""Writes models and images to begin with: python tests/fuzz/seeds.py FOLDER [--all] [--onnxruntime].

The models are the official node cases, with what their inputs are fed as initializers of the inputs' names; the images
are those of ImageDecoder's cases. With --all there are more models: the cases that past releases of onnx shipped, and
one in ten cells of the type matrix, each operator version among them, and with --onnxruntime the templates of the
operators that onnxruntime adds, alone or, with --all, besides the others. The type matrix needs onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_torch.self_test.official import node_cases

TESTS = Path(__file__).resolve().parents[1]
MOST_BYTES = 200_000  # larger models take long, and differ from smaller ones in nothing but their sizes


def with_feeds(model: onnx.ModelProto, inputs: Sequence[Any]) -> onnx.ModelProto:
    """The model, with an initializer for each input that is a tensor."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for info, value in zip(model.graph.input, inputs, strict=False):
        if info.type.HasField("tensor_type") and value is not None:
            array = np.asarray(value)
            array = array.astype(object) if array.dtype.kind in "US" else array
            result.graph.initializer.append(numpy_helper.from_array(array, info.name))
    return result


def more_models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Those of past releases, and of the type matrix."""
    from past_mistakes import mistake_of
    from past_releases import RELEASES, case_of, distinct, wheels_folder
    from type_matrix.cells import all_cells
    from type_matrix.rules import left_out
    from type_matrix.sample import sample
    from type_matrix.templates import cases

    for folder in distinct(list(RELEASES), wheels_folder()):
        if mistake_of(folder):
            continue
        case = case_of(folder)
        inputs = case.data_sets[0][0] if case.data_sets else []
        yield f"{folder.release}-{folder.name}", with_feeds(case.model, inputs)
    for cell in sample(all_cells()):
        of_matrix = None if left_out(cell) else next(cases(cell), None)
        if of_matrix:
            yield str(cell).replace("/", "-"), with_feeds(of_matrix.model, of_matrix.inputs)


def onnxruntime_models() -> Iterator[tuple[str, onnx.ModelProto]]:
    from type_matrix.cells import translated_contrib_schemas
    from type_matrix.templates import as_written, contrib_templates

    for key in translated_contrib_schemas():
        for number, template in enumerate(contrib_templates(key)):
            case = as_written(key, template)
            yield "-".join([*filter(None, map(str, key)), str(number)]), with_feeds(case.model, case.inputs)


def official_seeds() -> Iterator[tuple[str, bytes]]:
    for case in node_cases():
        yield f"models/{case.name}.onnx", with_feeds(case.model, case.data_sets[0][0]).SerializeToString()
        if case.model.graph.node[0].op_type == "ImageDecoder":
            (image,), _ = case.data_sets[0]
            yield f"images/{case.name}", image.tobytes()


def seeds(everything: bool, onnxruntime: bool) -> Iterator[tuple[str, bytes]]:
    """Files by their names."""
    sys.path.insert(0, str(TESTS / "python"))
    if everything or not onnxruntime:
        yield from official_seeds()
    for wanted, models in ((everything, more_models), (onnxruntime, onnxruntime_models)):
        if wanted:
            for name, model in models():
                yield f"models/{name}.onnx", model.SerializeToString()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--all", action="store_true", help="past releases (which pip downloads) and the type matrix too"
    )
    parser.add_argument("--onnxruntime", action="store_true", help="the operators that onnxruntime adds")
    options = parser.parse_args()
    folder: Path = options.folder
    count = 0
    for name, content in seeds(options.all, options.onnxruntime):
        if name.startswith("models/") and len(content) > MOST_BYTES:
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        count += 1
    print(f"{count} files in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
