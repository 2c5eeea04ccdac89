// A graph's runs, recorded for each set of the inputs' sizes and types, and replayed after that.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/recent.h"
#include "base/recording.h"
#include "base/shape_key.h"
#include "runtime/executable.h"

namespace onnxtorch {

// The runs of one program. Any number of threads may run it; one replays at a time. The inputs and results of a
// recording have memory of their own, which each replay reads and writes again: inputs are copied there, and results
// from there. The memory of a recording is kept for as long as it is one of the latest. Where the caller records, the
// recording has a plain run's work in it.
class RecordedRuns {
 public:
  // Takes a program of which nothing is known that keeps it from being recorded. Where recordings were `asked` for, the
  // first run of a set is recorded, runs wait for one another, and a run that cannot be recorded fails. Where not, the
  // third run is recorded, as its sizes will come again, and a run that would wait, cannot be recorded, or would take
  // longer so, is a plain one.
  RecordedRuns(std::shared_ptr<const Executable> executable, c10::Device device, bool asked);

  // Does what Executable's run does, but the inputs may lie anywhere.
  std::vector<c10::IValue> run(std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings);

 private:
  struct Recorded {
    std::vector<c10::IValue> inputs;
    std::vector<c10::IValue> results;
    std::unique_ptr<Recording> recording;  // is destroyed first
  };
  struct Runs {  // the runs of one set
    int plain = 0;
    bool are_slower = false;  // whether replays are slower than plain runs; no recording is kept then
    std::unique_ptr<const Recorded> recorded;
  };

  static ShapeKey key_of(std::span<const c10::IValue> inputs);
  static void copy(std::span<const c10::IValue> from, std::span<const c10::IValue> to);
  std::unique_ptr<const Recorded> record(std::span<const c10::IValue> inputs,
                                         const c10::intrusive_ptr<StringPool>& strings) const;
  // Tells whether a replay takes longer than a plain run, as where little is launched, and much is copied.
  bool is_slower(const Recorded& recorded, std::span<const c10::IValue> inputs,
                 const c10::intrusive_ptr<StringPool>& strings) const;
  static std::vector<c10::IValue> replayed(const Recorded& recorded, std::span<const c10::IValue> inputs);
  std::vector<c10::IValue> run_plainly(std::span<const c10::IValue> inputs,
                                       const c10::intrusive_ptr<StringPool>& strings) const;

  std::shared_ptr<const Executable> executable_;
  c10::Device device_;
  bool asked_;
  std::atomic<bool> gave_up_ = false;
  std::mutex mutex_;  // guards what follows
  Recent<ShapeKey, std::unique_ptr<Runs>> runs_;
};

}  // namespace onnxtorch
