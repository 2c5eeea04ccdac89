// The time that a model's runs take, as far as its last run and the size of its inputs tell.
#pragma once

#include <atomic>

namespace onnxtorch {

class Pace {
 public:
  // Tells whether a run on inputs of so many bytes may take longer than one who presses Ctrl-C will wait.
  bool may_take_long(double bytes) const {
    const double pace = seconds_per_byte_;
    return bytes <= kMostCopied && pace >= kCopying && pace * bytes >= kPatience;
  }
  void note(double bytes, double seconds) { seconds_per_byte_ = static_cast<float>(seconds / bytes); }

 private:
  static constexpr double kPatience = 0.4;  // seconds
  // Seconds a byte: below, a copy of the inputs would be a tenth of the run, and no operator takes long by itself.
  static constexpr double kCopying = 5e-9;
  static constexpr double kMostCopied = 1 << 28;  // bytes; memory may have no room for a copy of more
  static constexpr float kUnknown = 2e-7F;  // before the first run: that of a convolutional network on one processor

  std::atomic<float> seconds_per_byte_ = kUnknown;
};

}  // namespace onnxtorch
