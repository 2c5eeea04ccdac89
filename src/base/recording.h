// Work that a device was given once, to be given again as a whole: a CUDA graph. The library for the device brings what
// records.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>

namespace onnxtorch {

class __attribute__((visibility("default"))) Recording {
 public:
  using Work = std::function<void()>;

  virtual ~Recording() = default;

  // Does the work some times, and then keeps what it gives the device, which this once does not do it. The memory that
  // the work takes stays as it is from then on.
  virtual void record(const Work& work) = 0;

  // Gives the device in the caller's stream what before() does, what was recorded, and what after() does. It begins
  // when it is done with what an earlier replay gave it, in whatever stream.
  virtual void replay(const Work& before, const Work& after) = 0;

  // How long the device takes, with nothing else to do, to be done with what the work gives it.
  virtual double seconds_of(const Work& work) = 0;
};

struct Recorder {
  std::function<std::unique_ptr<Recording>(c10::Device device)> make;
  std::function<bool(c10::Device device)> is_at_work;  // in the caller's stream, for whomever
};

void register_recorder(Recorder recorder);

// Has another one record, for tests on machines without a device; none: the one that is registered again.
void assume_recorder(std::optional<Recorder> recorder);

bool has_recordings();

// Throws where nothing records.
std::unique_ptr<Recording> new_recording(c10::Device device);

// Whether what the device is given now, in the caller's stream, is a part of a recording.
bool is_being_recorded(c10::Device device);

}  // namespace onnxtorch
