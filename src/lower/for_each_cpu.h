// Compiles a function once for each kind of CPU; the right one is chosen when the program starts. What it calls must be
// inlined, to be compiled along.
#pragma once

#ifdef __x86_64__
#define ONNX_TORCH_FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ONNX_TORCH_FOR_EACH_CPU
#endif
#define ONNX_TORCH_INLINE [[gnu::always_inline]] inline
