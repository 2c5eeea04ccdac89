"""ONNX models as they come: their files, parts of them, inputs for them, and trust. Nothing here runs a model."""
