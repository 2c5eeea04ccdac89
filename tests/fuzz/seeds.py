"""Writes models, images and texts to begin with: python tests/fuzz/seeds.py FOLDER [--all] [--onnxruntime].

The models are the official node cases, with what their inputs are fed as initializers of the inputs' names; the images
are those of ImageDecoder's cases; two models have sparse tensors; saved models have operators that lay out weights,
with what they have laid out as initializers (tests/fuzz/saved.cpp); texts are for the operators on strings
(tests/fuzz/texts.cpp). With --all there are more models: cases that past releases of onnx shipped, one in ten cells of
the type matrix, each operator version among them, and ATen nodes. With --onnxruntime there are the templates of the
operators that onnxruntime adds, alone or, with --all, besides the others. The type matrix needs onnxruntime.
"""

from __future__ import annotations

import argparse
import base64
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import onnx_torch
from onnx_torch.self_test._official import node_cases

TESTS = Path(__file__).resolve().parents[1]
MOST_BYTES = 200_000  # larger models take long, and differ from smaller ones in nothing but their sizes


def with_feeds(model: onnx.ModelProto, inputs: Sequence[Any]) -> onnx.ModelProto:
    """Gives the model with an initializer for each input that is a tensor."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for info, value in zip(model.graph.input, inputs, strict=False):
        if info.type.HasField("tensor_type") and value is not None:
            array = np.asarray(value)
            array = array.astype(object) if array.dtype.kind in "US" else array
            result.graph.initializer.append(numpy_helper.from_array(array, info.name))
    return result


def more_models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Gives the models of past releases, and of the type matrix."""
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


def aten_models() -> Iterator[tuple[str, onnx.ModelProto]]:
    from aten_seeds import aten_nodes

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is deprecated, or has too few elements, is called nevertheless
        for name, model, inputs in aten_nodes():
            yield name, with_feeds(model, inputs)


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


#: Inputs and a node, by a name. The first input is fed, the others are weights, large enough to be laid out.
LAYING_OUT = {
    "conv": ("float[2,6,8,8] x, float[16,6,3,3] w, float[16] b", "y = Conv(x, w, b)"),
    "conv_in_groups": ("float[2,8,8,8] x, float[8,1,3,3] w", "y = Conv<group = 8>(x, w)"),
    "conv_transpose": ("float[2,6,8,8] x, float[6,16,3,3] w", "y = ConvTranspose(x, w)"),
    "conv_integer": ("uint8[2,6,8,8] x, int8[16,6,3,3] w", "y = ConvInteger(x, w)"),
    "matmul": ("float[40,64] x, float[64,500] w", "y = MatMul(x, w)"),
    "matmul_integer": ("uint8[5,64] x, int8[64,32] w", "y = MatMulInteger(x, w)"),
    "matmul_bits": (
        "float[5,64] x, uint8[32,2,16] w, float[64] s",
        "y = com.microsoft.MatMulNBits<K=64, N=32, bits=4, block_size=32>(x, w, s)",
    ),
    "gemm": ("float[40,64] x, float[500,64] w, float[500] b", "y = Gemm<transB = 1>(x, w, b)"),
    "lstm": ("float[30,8,32] x, float[1,128,32] w, float[1,128,32] r", "y = LSTM<hidden_size = 32>(x, w, r)"),
    "gru": ("float[30,8,32] x, float[1,96,32] w, float[1,96,32] r", "y = GRU<hidden_size = 32>(x, w, r)"),
}


def sparse_seeds() -> Iterator[tuple[str, bytes]]:
    """Gives models with a sparse initializer and a sparse constant, whose indices are of each of the two forms."""
    values = numpy_helper.from_array(np.float32([1, 2, 3]))
    forms = {"linear": [0, 3, 5], "coordinates": [[0, 0], [1, 1], [1, 3]]}
    for form, indices in forms.items():
        sparse = onnx.helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64(indices)), [2, 4])
        model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> g (float[2,4] x) => (y) {}')
        model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], sparse_value=sparse))
        model.graph.node.append(onnx.helper.make_node("Sum", ["x", "c", "s"], ["y"]))
        model.graph.sparse_initializer.append(sparse)
        model.graph.sparse_initializer[0].values.name = "s"
        fed = with_feeds(model, [np.ones((2, 4), np.float32)])
        yield f"models/sparse_{form}.onnx", fed.SerializeToString()


def saved_model(inputs: str, node: str) -> onnx.ModelProto:
    """Makes a model that ran once, with its weights as its operators have laid them out."""
    opsets = '"": 21, "com.microsoft": 1'
    result = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]> g ({inputs}) => (y) {{ {node} }}")
    (fed, value), *weights = onnx_torch.random_inputs(result).items()
    del result.graph.input[1:]
    result.graph.initializer.extend(numpy_helper.from_array(weight, name) for name, weight in weights)
    rep = onnx_torch.prepare(result, threads=1)
    rep.run({fed: value})
    result.graph.initializer.append(numpy_helper.from_array(value, fed))
    for number, operation in enumerate(rep._prepared.laid_weights):
        for layout, data in operation or [("", np.zeros(0, np.uint8))]:
            result.graph.initializer.append(numpy_helper.from_array(data, f"laid {number} {layout}"))
    return result


def saved_seeds() -> Iterator[tuple[str, bytes]]:
    for name, (inputs, node) in LAYING_OUT.items():
        yield f"saved/{name}.onnx", saved_model(inputs, node).SerializeToString()


def sentence_model_of(model_type: int) -> str:
    """Gives a model of sentencepiece of a piece of each type and a rule, a to bc, in base64."""
    from models import sentence_model

    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("[X]", 0.0, 4), ("ab", -1.0, 5)]
    pieces += [(text, -2.0, 1) for text in ("a", "b", "c", "bc", "\u2581")]
    units = np.zeros(256, "<u4")
    units[97], units[200] = 97 | 1 << 8 | (97 ^ 200) << 10, 1 << 31
    rules = units.nbytes.to_bytes(4, "little") + units.tobytes() + b"bc\0"
    return base64.b64encode(sentence_model(pieces, rules, model_type)).decode()


def text_seeds() -> Iterator[tuple[str, bytes]]:
    """Gives lines: an operator with a choice of its options, two arguments, and what it is done to."""
    texts = [
        "",
        "a b  c",
        "a,b;c",
        "Stra\u00dfe \u0130I",
        "+1.5e-3",
        "-1e400",
        "0x1F",
        "\u3000tab\t",
        "\xffnul\0",
        "a b  c",
    ]
    arguments = {
        "concat": ("-", ""),
        "split": (",", ""),
        "match": (r"(a|b)+\s?.*", ""),
        "normalize": ("a b  c", "tr_TR"),
        "read": ("", ""),
        "write": ("", ""),
        "unique": ("", ""),
        "hash": ("", ""),
        "tokenize": (r"[a-z]+|\d", "<pad>"),
        "ngrams": ("3", "0"),
        "replace": (r"(\w)(\w)?", r"\2-\1"),
        "pieces": (r"(\s+|,)", r"\s"),
        "sparse": (" ,", ""),
        "join": ("; ", ""),
        "case": ("", ""),
        "strip": ("", ""),
        "length": ("", ""),
        "find_pieces": ("[UNK];[CLS];[SEP];a;b;##b;,;stra\u00dfe", "##"),
        "join_pieces": ("[UNK];a;##b;'s;.;,;n't", "##"),
        "merge_bytes": ('{"a": 0, "b": 1, "ab": 2, "\\u0120": 3, "b</w>": 4, "ab</w>": 5}', "a b;a b</w>"),
        "find_sentence_pieces": (sentence_model_of(1), ""),
        "join_sentence_pieces": (sentence_model_of(2), ""),
        "join_bytes": ("a;b;\u0120;\u65e5;<0xE6>", "97\t97;98\t230;288\t32;2\t151"),
    }
    for name, (first, second) in arguments.items():
        for choice in (0, 1, 6, 13):
            yield f"texts/{name}-{choice}", "\n".join([f"{name} {choice}", first, second, *texts]).encode()


def seeds(everything: bool, onnxruntime: bool) -> Iterator[tuple[str, bytes]]:
    """Gives the files by their names."""
    sys.path.insert(0, str(TESTS / "python"))
    if everything or not onnxruntime:
        yield from official_seeds()
        yield from sparse_seeds()
        yield from saved_seeds()
        yield from text_seeds()
    for wanted, models in ((everything, more_models), (everything, aten_models), (onnxruntime, onnxruntime_models)):
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
        if not name.startswith("images/") and len(content) > MOST_BYTES:
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        count += 1
    print(f"{count} files in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
