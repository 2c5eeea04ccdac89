// Marks what the kernels of the CPU and those of CUDA compute by: one function, compiled for both.
#pragma once

#ifdef __CUDACC__
#define ONNX_TORCH_BOTH __host__ __device__
#else
#define ONNX_TORCH_BOTH
#endif
