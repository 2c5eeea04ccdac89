// A timer of the nodes of a run, for profiles.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace onnxtorch {

// One execution of a node, in nanoseconds from the timer's start.
struct NodeTime {
  int64_t node;
  int64_t start;
  int64_t duration;
  int64_t own;  // the duration less what the nodes of its bodies took
};

// The times that onnx_torch::begin_node and onnx_torch::end_node mark on this thread while it lives.
class __attribute__((visibility("default"))) NodeTimer {
 public:
  explicit NodeTimer(c10::Device device);
  ~NodeTimer();
  NodeTimer(const NodeTimer&) = delete;
  NodeTimer& operator=(const NodeTimer&) = delete;

  void begin(int64_t node);
  void end();
  const std::vector<NodeTime>& times() const { return times_; }  // in the order in which they began

 private:
  int64_t now() const;  // the time once the device has done what it was given

  c10::Device device_;
  std::chrono::steady_clock::time_point start_;
  std::vector<NodeTime> times_;
  std::vector<size_t> open_;  // the nodes that are running, outermost first
};

}  // namespace onnxtorch
