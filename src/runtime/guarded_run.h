// A run that its limits or its caller may stop.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/node_timer.h"
#include "base/run_guard.h"
#include "base/string_pool.h"
#include "runtime/executable.h"
#include "runtime/targets.h"

namespace onnxtorch {

// The error of a run that was stopped. It tells why, and the index of the node that the run was at.
struct StoppedRun : std::runtime_error {
  StoppedRun(const std::string& reason, std::optional<size_t> at) : std::runtime_error(reason), node(at) {}
  std::optional<size_t> node;
};

struct GuardedRun {
  std::shared_ptr<const Executable> executable;
  std::vector<c10::IValue> inputs;
  c10::intrusive_ptr<StringPool> strings;
  Targets targets;
  Limits limits;
  c10::Device device;
  bool timed;      // whether the time of each node is taken
  bool may_leave;  // whether the run may end while a node that cannot be stopped goes on

  struct Result {
    std::vector<c10::IValue> values;
    std::vector<NodeTime> times;
  };

  // Runs the program. A run that may leave a node behind has a thread of its own, where the node goes on with the
  // memory that it uses. None of that memory is the caller's: inputs there are copied, and targets not taken.
  Result operator()(const StopFlag* stop) &&;
};

}  // namespace onnxtorch
