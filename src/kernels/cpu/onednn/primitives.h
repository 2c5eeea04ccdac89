// The code that the oneDNN primitives have in common: descriptions, memory, calls, and the steps after them.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <vector>

#include "base/cpu_tensor.h"
#include "base/fork_safe.h"
#include "base/recent.h"
#include "base/shape_key.h"
#include "kernels/cpu/packed/packed.h"

// libtorch's include directory has the headers of another release.
static_assert(DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR == 2);

namespace onnxtorch::onednn {

const dnnl::engine& engine();

// Throws std::bad_alloc where there is less memory than oneDNN needs to describe and make a primitive, and an error where
// none can be executed: oneDNN writes what it describes, and runs what it generates, without a look at whether it got
// any.
void need_memory();

// Tells whether oneDNN has nothing fast for it on this CPU: its reference implementation, or none. A description is
// made so that it is then empty (`allow_empty`), where oneDNN would throw an exception.
bool is_reference(const dnnl::primitive_desc_base& description);

// Tells whether each size, and what padding adds to it, is an int to oneDNN, which divides by zero where one is cut to
// that.
inline bool are_ints(at::IntArrayRef sizes) {
  return std::ranges::all_of(sizes, [](int64_t size) { return size < int64_t{1} << 30; });
}

// Tells whether none of the computed sizes is negative.
inline bool are_sizes(at::IntArrayRef sizes) {
  return std::ranges::all_of(sizes, [](int64_t size) { return size >= 0; });
}

// Begins the key of a primitive, which divides its work among the threads of now when it is made.
inline ShapeKey primitive_key() {
  ShapeKey key;
  key.add(at::get_num_threads());
  return key;
}

// Gives oneDNN's name of float32, bfloat16, int8 or uint8.
dnnl::memory::data_type named(c10::ScalarType type);

// Gives oneDNN the memory that a tensor lends.
dnnl::memory borrowed(const dnnl::memory::desc& desc, const at::Tensor& tensor);

// The objects that calls of one primitive use again: describing memory takes longer than a small primitive runs. Any
// number of threads may call at the same time.
class Frames {
 public:
  struct Frame {
    std::vector<dnnl::memory> lent;
    std::vector<dnnl_exec_arg_t> arguments;
    at::Tensor room;  // the scratchpad, where it is small
  };

  std::unique_ptr<Frame> take();
  void give_back(std::unique_ptr<Frame> frame);

 private:
  ForkSafeMutex mutex_;
  std::vector<std::unique_ptr<Frame>> free_;
};

// One run of a primitive, with what it is lent, which must live until then.
class Call {
 public:
  Call() : frame_(std::make_unique<Frames::Frame>()) {}
  // All calls with these frames take the same arguments in the same order; only the tensors differ.
  explicit Call(std::shared_ptr<Frames> frames) : frames_(std::move(frames)), frame_(frames_->take()) {}

  Call& with(int argument, const dnnl::memory& memory);
  Call& with(int argument, const dnnl::memory::desc& desc, const at::Tensor& tensor) {
    return with(argument, desc, tensor.data_ptr());
  }
  Call& with(int argument, const dnnl::memory::desc& desc, void* data);
  // Runs the primitive on this thread's stream; that is the last that is asked of a call.
  void run(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad = {});

 private:
  bool is_known() const { return given_ < frame_->arguments.size(); }

  std::shared_ptr<Frames> frames_;
  std::unique_ptr<Frames::Frame> frame_;
  size_t given_ = 0;
};

void reorder(const dnnl::memory& from, const dnnl::memory& to);

// A tensor's elements in another layout, in memory of its own.
struct Laid {
  at::Tensor bytes;
  dnnl::memory memory;
};
Laid laid_out(const dnnl::memory& from, const dnnl::memory::desc& desc);

// Gives the attributes of a primitive with these steps after it; an operand is described by `result`.
dnnl::primitive_attr attributes(std::span<const PostOp> post_ops, const dnnl::memory::desc& result);

// Applies the same steps by ATen.
at::Tensor apply(at::Tensor x, std::span<const PostOp> post_ops, at::TensorList operands);

}  // namespace onnxtorch::onednn
