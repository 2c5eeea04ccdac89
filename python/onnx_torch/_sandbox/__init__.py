"""The process of `onnx_torch.sandbox`: what runs in it, what it may do no more, and how values get there and back."""
