"""ONNX's coverage report prints at the end of a run (and goes to CSV files where CSVDIR is set)."""

pytest_plugins = "onnx.backend.test.report"
