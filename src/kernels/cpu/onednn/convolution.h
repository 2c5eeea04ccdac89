// The parts that float convolutions and those of int8 and uint8 have in common.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "kernels/cpu/onednn/fused.h"
#include "kernels/cpu/packed/convolution.h"

namespace onnxtorch::onednn {

template <typename Of>
Of with_weight(Of of, const at::Tensor& weight) {
  of.weight = weight;
  return of;
}

// Describes images with the channels innermost.
dnnl::memory::desc channels_last(at::IntArrayRef sizes, dnnl::memory::data_type type);

// Makes the primitive for images as described, with a weight of this type and a float bias; returns none where oneDNN
// has only its reference implementation.
Prepared prepared_convolution(const Convolution& c, const dnnl::memory::desc& source, dnnl::memory::data_type weight,
                              const dnnl::memory::desc& result, const dnnl::primitive_attr& attributes,
                              const LaidWeight& laid);

}  // namespace onnxtorch::onednn
