"""Speed and memory of onnx_torch beside other engines: `./dev bench`."""
