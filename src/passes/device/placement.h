// The placement of each ONNX node of a model, and the reason for it; and a check that it can run there at all.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "graph/program.h"

namespace onnxtorch {

struct NodePlacement {
  std::string where;  // "CUDA:0", "CPU", or "" where nothing is left of the node
  std::string why;    // the reason that the host has a part in it, or all; "" where all of it runs on the device
};

// Gives the placement of each node, by its number. `translated` is the program that `lowered` was made of.
std::vector<NodePlacement> placement(const Program& translated, const Program& lowered, c10::Device device);

// Throws an UnsupportedError that names all nodes that need a kernel which the device does not have.
void check_kernels(const Program& program, c10::Device device);

}  // namespace onnxtorch
