// The time that each node takes: a model is translated with these operators around each of its nodes.
#include "base/node_timer.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

namespace onnxtorch {
namespace {

thread_local NodeTimer* timer = nullptr;

void begin_node(int64_t node) {
  if (timer) timer->begin(node);
}

void end_node() {
  if (timer) timer->end();
}

}  // namespace

NodeTimer::NodeTimer(c10::Device device) : device_(device), start_(std::chrono::steady_clock::now()) { timer = this; }
NodeTimer::~NodeTimer() { timer = nullptr; }

int64_t NodeTimer::now() const {
  if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
}

void NodeTimer::begin(int64_t node) {
  open_.push_back(times_.size());
  times_.push_back({node, 0, 0, 0});
  times_.back().start = now();
}

void NodeTimer::end() {
  NodeTime& time = times_[open_.back()];
  time.duration = now() - time.start;
  time.own += time.duration;
  open_.pop_back();
  if (!open_.empty()) times_[open_.back()].own -= time.duration;
}

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // The operators must stay in the graph, and in their places, although they return nothing.
  m.def(torch::schema("begin_node(int node) -> ()", c10::AliasAnalysisKind::CONSERVATIVE), begin_node);
  m.def(torch::schema("end_node() -> ()", c10::AliasAnalysisKind::CONSERVATIVE), end_node);
}

}  // namespace onnxtorch
