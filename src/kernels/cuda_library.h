#pragma once

namespace onnxtorch {

// Loads the CUDA kernels, the library beside the one that this function is in. Where it was built without them, there
// is none, and operators that have no other implementation for CUDA say so when they run. Loads once.
void load_cuda_kernels();

}  // namespace onnxtorch
