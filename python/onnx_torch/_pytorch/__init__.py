"""Models as modules of PyTorch: the names of their parts, TorchScript, Python code, and weights that come back."""
