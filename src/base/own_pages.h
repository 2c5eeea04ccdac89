// Memory for weights. It goes back to the system as soon as it is given up, where an allocator would keep it for
// others: while a model is prepared, most weights are held for a moment in one layout, and then in another.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

// Of bytes, not filled.
__attribute__((visibility("default"))) at::Tensor own_pages(int64_t bytes);

}  // namespace onnxtorch
