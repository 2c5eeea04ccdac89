// Work without Python's lock that Ctrl-C stops, where it is the main thread's.
#pragma once

#include <optional>

#include "base/interruption.h"
#include "base/work_beside.h"
#include "gil.h"

namespace onnxtorch {

// Tells whether this thread is the one that Python tells of signals; if it is, Interruptible work of it notices them.
bool notices_signals();
// Calls the handlers in Python of signals that have come, and throws what they raise.
void check_signals();
void ask_python();  // the same without Python's lock

// Does the work without Python's lock. An exception that a signal's handler raises meanwhile comes out, as
// KeyboardInterrupt does.
template <typename Work>
auto without_gil(const Work& work) {
  std::optional<Interruptible> interruptible;
  std::optional<WorkBeside> beside;
  if (notices_signals()) {
    interruptible.emplace(ask_python);
    check_signals();
  } else {
    beside.emplace();
  }
  const WithoutGil without;
  try {
    return work();
  } catch (...) {
    if (interruptible) interruptible->rethrow();
    throw;
  }
}

}  // namespace onnxtorch
