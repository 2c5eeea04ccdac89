#include "base/recording.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <utility>

namespace onnxtorch {
namespace {

struct Recorders {
  std::mutex mutex;
  std::optional<Recorder> registered, assumed;
};

Recorders& recorders() {
  static Recorders all;
  return all;
}

std::optional<Recorder> current() {
  Recorders& all = recorders();
  const std::lock_guard lock(all.mutex);
  return all.assumed ? all.assumed : all.registered;
}

}  // namespace

void register_recorder(Recorder recorder) {
  Recorders& all = recorders();
  const std::lock_guard lock(all.mutex);
  all.registered = std::move(recorder);
}

void assume_recorder(std::optional<Recorder> recorder) {
  Recorders& all = recorders();
  const std::lock_guard lock(all.mutex);
  all.assumed = std::move(recorder);
}

bool has_recordings() { return current().has_value(); }

std::unique_ptr<Recording> new_recording(c10::Device device) {
  const auto recorder = current();
  TORCH_CHECK(recorder, "nothing records what ", device, " is given");
  return recorder->make(device);
}

bool is_being_recorded(c10::Device device) {
  const auto recorder = current();
  return recorder && recorder->is_at_work(device);
}

}  // namespace onnxtorch
