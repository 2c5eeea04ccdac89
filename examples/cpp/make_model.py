"""Make what classify.cpp runs: a model that reads digits, and some images for it.

    python examples/cpp/make_model.py FOLDER

writes FOLDER/digits.onnx, whose metadata names its classes, and an image of each digit, FOLDER/0.pgm to FOLDER/9.pgm.
"""

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

LEVELS = 16  # of grey in scikit-learn's digits


def model(weights: np.ndarray, bias: np.ndarray, classes: list[str]):
    """Images of shape (batch, 8, 8) with values in [0, 1] → probabilities of shape (batch, classes)."""
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["pixels"]),
            helper.make_node("Gemm", ["pixels", "weights", "bias"], ["scores"], transB=1),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", len(classes)])],
        [
            numpy_helper.from_array(weights.astype(np.float32), "weights"),
            numpy_helper.from_array(bias.astype(np.float32), "bias"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    helper.set_model_props(made, {"classes": " ".join(classes)})
    return made


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    kept_out = [int(np.flatnonzero(labels == digit)[-1]) for digit in range(10)]
    trained = np.setdiff1d(np.arange(len(labels)), kept_out)
    fitted = LogisticRegression(max_iter=200).fit(images[trained] / LEVELS, labels[trained])
    save(model(fitted.coef_, fitted.intercept_, [str(label) for label in fitted.classes_]), folder / "digits.onnx")
    for digit, i in enumerate(kept_out):
        header = f"P5 8 8 {LEVELS}\n".encode()
        (folder / f"{digit}.pgm").write_bytes(header + images[i].astype(np.uint8).tobytes())


if __name__ == "__main__":
    main()
