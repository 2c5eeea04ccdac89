"""The process of `onnx_torch.sandbox`: its requests, its confinement, and the way of values there and back."""
