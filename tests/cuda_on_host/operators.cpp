// The operators that have a CUDA kernel, under a name of their own, for the CPU.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

TORCH_LIBRARY(onnx_torch_on_host, m) {
  for (const std::string name :
       {"cast_small_float", "deform_conv", "element_wise", "find_keys", "linear_of_bits", "map_keys", "max_roi_pool",
        "multiclass_probability", "non_max_suppression", "roi_align", "tree_ensemble"}) {
    const auto& schema = c10::Dispatcher::singleton().findSchemaOrThrow(("onnx_torch::" + name).c_str(), "").schema();
    m.def(schema.cloneWithName("onnx_torch_on_host::" + name, ""));
  }
}
