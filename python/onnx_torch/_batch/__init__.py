"""The parts of `onnx_torch.batch` and `onnx_torch.ray`: sources of rows, models that take rows, and workers."""
