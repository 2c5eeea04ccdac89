// Passes make a graph cheaper and keep what it computes. Each has a name, can be left out, and is written out before
// and after where ONNX_TORCH_DUMP names it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "graph/program.h"

namespace onnxtorch {

struct Pass {
  enum class Device : uint8_t { Any, Cpu, Cuda };

  const char* name;
  const char* what;  // what it does, in a line
  void (*run)(Program& program);
  Device device = Device::Any;
  bool (*is_needed)(const Program& program) = nullptr;  // for a pass that runs only where a program needs it
};

// Gives all passes that a model goes through on a device, in their order.
std::vector<Pass> passes_for(c10::Device device);

// Gives those of them that may be left out.
std::vector<Pass> optional_passes_for(c10::Device device);

}  // namespace onnxtorch
