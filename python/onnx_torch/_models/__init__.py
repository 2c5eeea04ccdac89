"""ONNX models before they run: their files, parts of them, inputs for them, and trust. Nothing here runs a model."""
