// Kernels for the meta device, which find shapes, in C++. Under Python torch puts kernels written in Python before
// ATen's own, whose first call imports torch.compile: seconds, and 200 MB.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace onnxtorch {

// While one lives, operators that this thread calls on meta tensors are those in C++, where there are any.
class MetaKernelsInCpp {
  c10::impl::IncludeDispatchKeyGuard guard_{c10::DispatchKey::DeferredInit};
};

}  // namespace onnxtorch
