// Stands in for CUDA's header, where its kernels are compiled for the CPU.
#pragma once

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorInvalidConfiguration };
