"""A module that is not here: importing it raises ImportError."""

from onnx_torch.compat._status import no_module

no_module("training", "train the model with torch")
