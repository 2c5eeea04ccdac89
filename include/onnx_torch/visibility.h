// The mark of what the shared library exports; everything else in it is hidden.
#pragma once

#define ONNX_TORCH_API __attribute__((visibility("default")))
