// Floating-point operators whose gradient nobody has written: asking for it is an error, instead of a gradient that is
// missing.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

TORCH_LIBRARY_IMPL(onnx_torch, Autograd, m) {
  for (const char* name :
       {"cast_small_float", "deform_conv", "max_roi_pool", "multiclass_probability", "roi_align", "tree_ensemble"}) {
    m.impl(name, torch::autograd::autogradNotImplementedFallback());
  }
}
