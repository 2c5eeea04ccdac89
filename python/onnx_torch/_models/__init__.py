"""ONNX models as they come: their files, parts of them, and inputs for them. Nothing here runs a model."""
