// The one list of what the host does whatever the device. All else runs where its tensors lie.
#pragma once

#include <c10/core/Device.h>

#include <span>

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace onnxtorch {

struct HostWork {
  const char* name;  // of the operator in the graph
  const char* what;  // the work, in a few words
};

std::span<const HostWork> host_work();

// Gives what work of the list a graph node is, or null.
const char* host_work(const torch::jit::Node* node);

// Gives the same, but null where the node has a kernel of its own on the device.
const char* host_work(const torch::jit::Node* node, c10::Device device);

}  // namespace onnxtorch
