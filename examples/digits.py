"""Train a small network on scikit-learn's digits, export it to ONNX, and run the model with three engines.

python examples/digits.py [--out FOLDER] [--device CPU]
"""

import argparse
import logging
import time
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import onnx
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import onnx_torch

EPOCHS = 12
BATCH = 64


def digits():
    """8x8 images in [0, 1] as (n, 1, 8, 8), and their labels, each split into training and test data."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32 * 4 * 4, 10),
    )


def train(net: nn.Module, images: np.ndarray, labels: np.ndarray) -> None:
    data = torch.utils.data.TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    threads = torch.get_num_threads()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    torch.set_num_threads(1)  # batches this small are slower on more threads
    net.train()
    for _ in range(EPOCHS):
        for x, y in torch.utils.data.DataLoader(data, BATCH, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    net.eval()
    torch.set_num_threads(threads)


def export(net: nn.Module, path: Path) -> onnx.ModelProto:
    """Writes the ONNX model; its batch size stays open."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            (torch.zeros(2, 1, 8, 8),),
            path,
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return onnx.load(path)


def picture(path: Path, images: np.ndarray, labels: np.ndarray, logits: np.ndarray) -> None:
    """A grid of digits with what the model took them for; mistakes first, and in red."""
    predicted = logits.argmax(1)
    order = np.argsort(predicted == labels, kind="stable")[:32]
    figure, axes = plt.subplots(4, 8, figsize=(8, 4.8))
    for ax, i in zip(axes.flat, order, strict=False):
        ax.imshow(images[i, 0], cmap="gray_r")
        ax.set_title(f"{predicted[i]}", color="black" if predicted[i] == labels[i] else "red")
        ax.axis("off")
    figure.suptitle("Predictions of onnx_torch (red: mistaken)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the model and the picture")
    parser.add_argument("--device", default="CPU", help="CPU or CUDA:0, for onnx_torch")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(0)
    train_images, images, train_labels, labels = digits()
    net = network()
    start = time.perf_counter()
    train(net, train_images, train_labels)
    print(f"Trained on {len(train_images)} digits in {time.perf_counter() - start:.1f} s")

    path = args.out / "digits.onnx"
    model = export(net, path)
    print(f"Exported: {', '.join(sorted({node.op_type for node in model.graph.node}))}")

    with torch.inference_mode():
        reference = net(torch.from_numpy(images)).numpy()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    logits = {
        "torch": reference,
        "onnxruntime": session.run(None, {"image": images})[0],
        f"onnx_torch ({args.device})": onnx_torch.backend.prepare(model, args.device).run([images])[0],
    }
    print(f"\n{'':22} accuracy on {len(labels)} new digits   largest difference from torch")
    for engine, values in logits.items():
        accuracy = (values.argmax(1) == labels).mean()
        print(f"{engine:22} {accuracy:>25.2%}   {np.abs(values - reference).max():>29.1e}")

    picture(args.out / "digits.png", images, labels, values)
    print(f"\nModel:   {path}\nPicture: {args.out / 'digits.png'}")


if __name__ == "__main__":
    main()
