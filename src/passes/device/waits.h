// The one list of the nodes at which the host waits for the device, besides the host's work. A program with such a node
// cannot be recorded and replayed as a whole (src/base/recording.h).
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "graph/program.h"

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace onnxtorch {

struct Wait {
  const char* name;  // of the operator in the graph
  const char* what;  // what the host waits for, in a few words
};

std::vector<Wait> waits();

// Gives what the host waits for at a node of a program that is lowered for the device; null where it goes on.
const char* waits_for(const torch::jit::Node* node, c10::Device device);

// Throws an UnsupportedError that names all nodes, or inputs, because of which a program's runs cannot be recorded.
void check_recordable(const Program& program, c10::Device device);

}  // namespace onnxtorch
