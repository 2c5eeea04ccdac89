"""What `onnx_torch.batch` and `onnx_torch.ray` are made of: where rows come from, what runs on them, and workers."""
