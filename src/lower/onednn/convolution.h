// What float convolutions and those of 8 bits have in common.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "lower/onednn/packed.h"

namespace onnxtorch::onednn {

// Whether the convolution is defined for images of these sizes.
bool fits(const Convolution& c, at::IntArrayRef sizes);

std::vector<int64_t> result_sizes(const Convolution& c, at::IntArrayRef sizes);

// Strides with the channels innermost. A size of 1 takes the stride that it would have were it larger.
std::vector<int64_t> channels_last_strides(at::IntArrayRef sizes);

// Images with the channels innermost.
dnnl::memory::desc channels_last(at::IntArrayRef sizes, dnnl::memory::data_type type);

// The contiguous weight.
dnnl::memory::desc weight_of(const Convolution& c, dnnl::memory::data_type type);

// The convolution of `source` to `result`, of a weight of this type, with a float bias.
dnnl::convolution_forward::primitive_desc described(const Convolution& c, const dnnl::memory::desc& source,
                                                    dnnl::memory::data_type weight, const dnnl::memory::desc& result,
                                                    const dnnl::primitive_attr& attributes);

}  // namespace onnxtorch::onednn
