// The attribute of functions in headers that files for several CPU capabilities include: an inline function of which a
// copy stays in the object files could be linked as it was compiled for another CPU.
#pragma once

#define ONNX_TORCH_INLINE [[gnu::always_inline]] inline
