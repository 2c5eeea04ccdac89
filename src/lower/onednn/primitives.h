// What the oneDNN primitives have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <vector>

#include "lower/onednn/packed.h"
#include "lower/recent.h"

// libtorch's include directory has the headers of another release.
static_assert(DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR == 2);

namespace onnxtorch::onednn {

const dnnl::engine& engine();

// Whether oneDNN has nothing fast for it on this CPU.
bool is_reference(const dnnl::primitive_desc_base& description);

// Whether primitives take the tensor: of the type that they are for, and not empty.
bool is_plain(const at::Tensor& t, c10::ScalarType type = c10::kFloat);

// float32, bfloat16, int8 or uint8, as oneDNN names it.
dnnl::memory::data_type named(c10::ScalarType type);

// Memory that a tensor lends.
dnnl::memory borrowed(const dnnl::memory::desc& desc, const at::Tensor& tensor);

// The tensor with these strides. That of a dimension of size 1 does not matter.
at::Tensor arranged(const at::Tensor& t, at::IntArrayRef strides);

// One run of a primitive, with what it is lent. Its tensors must live until then.
class Call {
 public:
  Call& with(int argument, const dnnl::memory& memory);
  Call& with(int argument, const dnnl::memory::desc& desc, const at::Tensor& tensor);
  // On this thread's stream.
  void run(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad = {});

 private:
  std::vector<dnnl::memory> lent_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// A tensor's elements in another layout, in memory of its own.
struct Laid {
  at::Tensor bytes;
  dnnl::memory memory;
};
Laid laid_out(const dnnl::memory& from, const dnnl::memory::desc& desc);

// The attributes of a primitive with these steps after it; an operand is described by `result`.
dnnl::primitive_attr attributes(std::span<const PostOp> post_ops, const dnnl::memory::desc& result);

// The same steps by ATen.
at::Tensor apply(at::Tensor x, std::span<const PostOp> post_ops, at::TensorList operands);

}  // namespace onnxtorch::onednn
