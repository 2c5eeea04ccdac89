// The time that a model's runs take, as far as its last run and the size of its inputs tell.
#pragma once

#include <atomic>

#include "graph/program.h"

namespace onnxtorch {

class Pace {
 public:
  // Estimates the pace of a model that has not run yet.
  void expect(const Program& program);
  // Tells whether a run on inputs of so many bytes may take longer than one who presses Ctrl-C will wait.
  bool may_take_long(double bytes) const;
  void note(double bytes, double seconds) { seconds_per_byte_ = static_cast<float>(seconds / bytes); }

 private:
  std::atomic<float> seconds_per_byte_ = 0;
};

}  // namespace onnxtorch
