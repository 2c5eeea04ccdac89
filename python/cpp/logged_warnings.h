// The warnings of libtorch and the kernels, which go to Python's logging, not to stderr.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace onnxtorch {

// The warnings of this thread while it lives, which are logged when it goes. The GIL is held at both ends.
class LoggedWarnings {
 public:
  LoggedWarnings() : guard_(&collector_) {}
  ~LoggedWarnings();

 private:
  struct Collector : c10::WarningHandler {
    void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
    std::vector<std::string> messages;
  };

  Collector collector_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace onnxtorch
