"""Names that others import, for lack of onnxruntime; where it is installed, `compat.install()` finds its own."""

from onnx_torch.compat._status import MARK, Status

globals()[MARK] = (
    Status.WORKS,
    "onnxruntime's own where it is installed, under `compat.install()`; else `io_binding_helper.TypeHelper` alone",
)
