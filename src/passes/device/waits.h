// At which nodes the host waits for the device: the one list of it, besides the host's work. What has such a node
// cannot be recorded and replayed as a whole (src/base/recording.h).
#pragma once

#include <c10/core/Device.h>

#include <span>

#include "graph/program.h"

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace onnxtorch {

struct Wait {
  const char* name;  // of the operator in the graph
  const char* what;  // the host waits for, in a few words
};

std::span<const Wait> waits();

// What the host waits for at a node of a program that is lowered for the device; null where it goes on.
const char* waits_for(const torch::jit::Node* node, c10::Device device);

// Throws an UnsupportedError that names all nodes, or inputs, because of which a program's runs cannot be recorded.
void check_recordable(const Program& program, c10::Device device);

}  // namespace onnxtorch
