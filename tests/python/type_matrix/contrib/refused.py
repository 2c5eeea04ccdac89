"""The operators of onnxruntime that are not translated for good, and why: domain and name → reason."""

_PLUGIN = "a plugin of TensorRT; onnxruntime says no more of it than its name"
_COMPILED = "holds what a library for other hardware has compiled, in that library's own form"

REFUSED = {
    ("", "DisentangledAttention_TRT"): _PLUGIN,
    ("", "EfficientNMS_TRT"): _PLUGIN,
    ("", "MultilevelCropAndResize_TRT"): _PLUGIN,
    ("", "PyramidROIAlign_TRT"): _PLUGIN,
    ("com.microsoft", "EPContext"): _COMPILED,
    ("com.microsoft", "Snpe"): _COMPILED,
}
