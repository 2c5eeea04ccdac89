#include "kernels/cpu/onednn/primitives.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <string_view>
#include <unordered_map>

#include "base/memory_reserve.h"
#include "base/own_pages.h"

namespace onnxtorch::onednn {
namespace {

struct Activation {
  dnnl::algorithm algorithm;
  float alpha, beta;  // oneDNN's, where ATen's has none
  at::Tensor (*aten)(const at::Tensor& x, double alpha, double beta);
};

const std::unordered_map<std::string, Activation>& activations() {
  using dnnl::algorithm;
  static const std::unordered_map<std::string, Activation> table = {
      {"relu", {algorithm::eltwise_relu, 0, 0, [](const at::Tensor& x, double, double) { return at::relu(x); }}},
      {"leaky_relu",
       {algorithm::eltwise_relu, 0, 0, [](const at::Tensor& x, double a, double) { return at::leaky_relu(x, a); }}},
      {"sigmoid",
       {algorithm::eltwise_logistic, 0, 0, [](const at::Tensor& x, double, double) { return at::sigmoid(x); }}},
      {"tanh", {algorithm::eltwise_tanh, 0, 0, [](const at::Tensor& x, double, double) { return at::tanh(x); }}},
      {"silu", {algorithm::eltwise_swish, 1, 0, [](const at::Tensor& x, double, double) { return at::silu(x); }}},
      {"gelu", {algorithm::eltwise_gelu_erf, 0, 0, [](const at::Tensor& x, double, double) { return at::gelu(x); }}},
      {"gelu_tanh",
       {algorithm::eltwise_gelu_tanh, 0, 0, [](const at::Tensor& x, double, double) { return at::gelu(x, "tanh"); }}},
      {"hardswish",
       {algorithm::eltwise_hardswish, 1.f / 6, 0.5f,
        [](const at::Tensor& x, double, double) { return at::hardswish(x); }}},
      {"hardsigmoid",
       {algorithm::eltwise_hardsigmoid, 1.f / 6, 0.5f,
        [](const at::Tensor& x, double, double) { return at::hardsigmoid(x); }}},
      {"clamp",
       {algorithm::eltwise_clip, 0, 0, [](const at::Tensor& x, double a, double b) { return at::clamp(x, a, b); }}},
  };
  return table;
}

// Tells whether the system lets memory be executed, as hardened ones may not. Throws std::bad_alloc where there is none.
bool may_execute_memory() {
  constexpr size_t kBytes = 1 << 20;  // more than a primitive's code takes
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  const int error = ::mprotect(memory, kBytes, PROT_READ | PROT_EXEC) == 0 ? 0 : errno;
  ::munmap(memory, kBytes);
  if (error == ENOMEM) throw std::bad_alloc();
  return error == 0;
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

void need_memory() {
  constexpr size_t kBytes = 1 << 15;
  ::operator delete(::operator new(kBytes));
  check_memory_reserve();
  TORCH_CHECK(may_execute_memory(), "memory cannot be executed, as oneDNN's generated code must be");
}

bool is_reference(const dnnl::primitive_desc_base& description) {
  return !description || std::string_view(description.impl_info_str()).starts_with("ref");
}

dnnl::memory::data_type named(c10::ScalarType type) {
  using Type = dnnl::memory::data_type;
  switch (type) {
    case c10::kFloat:
      return Type::f32;
    case c10::kBFloat16:
      return Type::bf16;
    case c10::kChar:
      return Type::s8;
    case c10::kByte:
      return Type::u8;
    default:
      TORCH_CHECK(false, "primitives take no ", type);
  }
}

dnnl::memory borrowed(const dnnl::memory::desc& desc, const at::Tensor& tensor) {
  need_memory();
  return {desc, engine(), tensor.data_ptr()};
}

std::unique_ptr<Frames::Frame> Frames::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Frame>();
  auto frame = std::move(free_.back());
  free_.pop_back();
  return frame;
}

void Frames::give_back(std::unique_ptr<Frame> frame) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(frame));
}

Call& Call::with(int argument, const dnnl::memory& memory) {
  if (!is_known()) {
    frame_->lent.push_back(memory);
    frame_->arguments.push_back({argument, memory.get()});
  }
  ++given_;
  return *this;
}

Call& Call::with(int argument, const dnnl::memory::desc& desc, void* data) {
  if (!is_known()) {
    need_memory();
    return with(argument, dnnl::memory(desc, engine(), data));
  }
  frame_->lent[given_++].set_data_handle(data);
  return *this;
}

void Call::run(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad) {
  constexpr size_t kSmall = 1 << 15;
  thread_local const dnnl::stream stream(engine());
  at::Tensor room = std::move(frame_->room);
  if (const size_t bytes = scratchpad.get_size(); bytes > 0) {
    if (!room.defined()) room = at::empty(static_cast<int64_t>(bytes), at::kByte);
    with(DNNL_ARG_SCRATCHPAD, scratchpad, room);
    if (bytes <= kSmall) frame_->room = std::move(room);
  }
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.get(), stream.get(),
                                                 static_cast<int>(frame_->arguments.size()), frame_->arguments.data()),
                          "could not run a oneDNN primitive");
  if (frames_) frames_->give_back(std::move(frame_));
}

void reorder(const dnnl::memory& from, const dnnl::memory& to) {
  need_memory();
  Call().with(DNNL_ARG_FROM, from).with(DNNL_ARG_TO, to).run(dnnl::reorder(from, to));
}

Laid laid_out(const dnnl::memory& from, const dnnl::memory::desc& desc) {
  const at::Tensor bytes = own_pages(static_cast<int64_t>(desc.get_size()));
  const dnnl::memory to = borrowed(desc, bytes);
  reorder(from, to);
  return {bytes, to};
}

dnnl::primitive_attr attributes(std::span<const PostOp> post_ops, const dnnl::memory::desc& result) {
  dnnl::post_ops steps;
  for (const PostOp& step : post_ops) {
    switch (step.kind) {
      case PostOp::Kind::Add:
        steps.append_binary(dnnl::algorithm::binary_add, result);
        break;
      case PostOp::Kind::Mul:
        steps.append_binary(dnnl::algorithm::binary_mul, result);
        break;
      case PostOp::Kind::Sum:
        steps.append_sum();
        break;
      case PostOp::Kind::Activation: {
        const Activation& of = activations().at(step.activation);
        const bool given = step.alpha != 0 || step.beta != 0;
        steps.append_eltwise(of.algorithm, given ? static_cast<float>(step.alpha) : of.alpha,
                             given ? static_cast<float>(step.beta) : of.beta);
      }
    }
  }
  dnnl::primitive_attr attr;
  attr.set_post_ops(steps);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

at::Tensor apply(at::Tensor x, std::span<const PostOp> post_ops, at::TensorList operands) {
  size_t next = 0;
  for (const PostOp& step : post_ops) {
    switch (step.kind) {
      case PostOp::Kind::Add:
      case PostOp::Kind::Sum:
        x = at::add(x, operands[next++]);
        break;
      case PostOp::Kind::Mul:
        x = at::mul(x, operands[next++]);
        break;
      case PostOp::Kind::Activation:
        x = activations().at(step.activation).aten(x, step.alpha, step.beta);
    }
  }
  return x;
}

}  // namespace onnxtorch::onednn

namespace onnxtorch {

bool is_post_activation(const std::string& name) { return onednn::activations().contains(name); }

}  // namespace onnxtorch
