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

  // Does the work a few times, and then once more, when what the work gives the device is kept and not done. The memory
  // that this work takes stays as it is from then on.
  virtual void record(const Work& work) = 0;

  // Gives the device in the caller's stream what before() does, what was recorded, and what after() does. The device
  // begins when it is done with what an earlier replay gave it, in whatever stream.
  virtual void replay(const Work& before, const Work& after) = 0;

  // Tells how long the device takes, with nothing else to do, to be done with what the work gives it.
  virtual double seconds_of(const Work& work) = 0;
};

struct Recorder {
  std::function<std::unique_ptr<Recording>(c10::Device device)> make;
  std::function<bool(c10::Device device)> is_at_work;  // whether anybody records the caller's stream
};

void register_recorder(Recorder recorder);

// Makes another one record, for tests on machines without a device; none: the one that is registered again.
void assume_recorder(std::optional<Recorder> recorder);

bool has_recordings();

// Makes a recording. Throws where nothing records.
std::unique_ptr<Recording> new_recording(c10::Device device);

// Tells whether what the device is given now, in the caller's stream, is a part of a recording.
bool is_being_recorded(c10::Device device);

}  // namespace onnxtorch
