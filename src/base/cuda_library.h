// The libraries that a process loads when it first asks for CUDA, and not before, as CUDA's libraries are large.
#pragma once

namespace onnxtorch {

// Tells whether NVIDIA's driver is installed, without which there is no CUDA device.
bool has_cuda_driver();

// Loads torch's library for CUDA, and says whether the torch that is installed has one. Loads once.
bool load_torch_cuda();

// Loads the CUDA kernels, the library beside the one that this function is in. Where it was built without them, there
// is none, and operators that have no other implementation for CUDA say so when they run. Loads once.
void load_cuda_kernels();

}  // namespace onnxtorch
