// Work in a thread of its own, for work that does not stop when it is to: a single operator of ATen's or oneDNN's. Who
// waits for it may go away, and it goes on alone to its end.
#pragma once

#include <functional>

namespace onnxtorch {

// Does the work with this thread's settings of torch's in a thread of its own, and waits for it while `waits`, which is
// asked every few milliseconds, says so or until it throws. Tells whether the work is done; work that goes on must own
// all that it uses. The work throws nothing. Where there is no thread to be had, this one does the work.
__attribute__((visibility("default"))) bool run_apart(std::function<void()> work, const std::function<bool()>& waits);

}  // namespace onnxtorch
