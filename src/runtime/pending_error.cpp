#include "runtime/pending_error.h"

#include <atomic>

namespace onnxtorch {
namespace {

std::atomic<TakePendingError> registered = nullptr;

}  // namespace

void register_pending_errors(TakePendingError take) { registered = take; }

std::string take_pending_error() {
  const TakePendingError take = registered;
  return take ? take() : "";
}

}  // namespace onnxtorch
