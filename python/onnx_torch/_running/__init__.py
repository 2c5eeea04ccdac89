"""What `onnx_torch.backend` runs models with: values, saved forms, measured runs, operators of your own."""
