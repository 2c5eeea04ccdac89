#include "runtime/recorded_runs.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/text_of.h"
#include "runtime/to_device.h"

namespace onnxtorch {
namespace {

using c10::IValue;

constexpr size_t kKept = 8;
constexpr int kPlainRuns = 2;  // their number where recordings were not asked for
constexpr int kTimed = 3;      // runs of each way, of which the fastest counts

IValue copied(const IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() ? value.toTensor().clone() : value;
  if (value.isList()) {
    c10::impl::GenericList items(value.toList().elementType());
    for (const IValue& item : value.toListRef()) items.push_back(copied(item));
    return items;
  }
  if (value.isTuple()) {
    std::vector<IValue> parts;
    for (const IValue& part : value.toTupleRef().elements()) parts.push_back(copied(part));
    return c10::ivalue::Tuple::create(std::move(parts));
  }
  return value;
}

}  // namespace

RecordedRuns::RecordedRuns(std::shared_ptr<const Executable> executable, c10::Device device, bool asked)
    : executable_(std::move(executable)), device_(device), asked_(asked), runs_(kKept) {}

ShapeKey RecordedRuns::key_of(std::span<const IValue> inputs) {
  ShapeKey key;
  for (const IValue& input : inputs) key.add_type_and_sizes(input.toTensor());
  return key;
}

void RecordedRuns::copy(std::span<const IValue> from, std::span<const IValue> to) {
  for (size_t i = 0; i < from.size(); ++i) copy_to_device(from[i].toTensor(), to[i].toTensor());
}

std::unique_ptr<const RecordedRuns::Recorded> RecordedRuns::record(
    std::span<const IValue> inputs, const c10::intrusive_ptr<StringPool>& strings) const {
  auto made = std::make_unique<Recorded>();
  for (const IValue& input : inputs) {
    const at::Tensor& given = input.toTensor();
    made->inputs.emplace_back(at::empty(given.sizes(), given.options().device(device_)));
  }
  copy(inputs, made->inputs);
  made->recording = new_recording(device_);
  made->recording->record([&] {
    made->results.clear();
    made->results = executable_->run(made->inputs, strings);
  });
  return made;
}

std::vector<IValue> RecordedRuns::replayed(const Recorded& recorded, std::span<const IValue> inputs) {
  std::vector<IValue> results;
  recorded.recording->replay([&] { copy(inputs, recorded.inputs); },
                             [&] {
                               for (const IValue& result : recorded.results) results.push_back(copied(result));
                             });
  return results;
}

std::vector<IValue> RecordedRuns::run_plainly(std::span<const IValue> inputs,
                                              const c10::intrusive_ptr<StringPool>& strings) const {
  return executable_->run(to_device({inputs.begin(), inputs.end()}, device_), strings);
}

bool RecordedRuns::is_slower(const Recorded& recorded, std::span<const IValue> inputs,
                             const c10::intrusive_ptr<StringPool>& strings) const {
  const auto least_seconds = [&](const Recording::Work& work) {
    work();
    double least = recorded.recording->seconds_of(work);
    for (int i = 1; i < kTimed; ++i) least = std::min(least, recorded.recording->seconds_of(work));
    return least;
  };
  const double plain = least_seconds([&] { run_plainly(inputs, strings); });
  return least_seconds([&] { replayed(recorded, inputs); }) > plain;
}

std::vector<IValue> RecordedRuns::run(std::span<const IValue> inputs, const c10::intrusive_ptr<StringPool>& strings) {
  const c10::InferenceMode inference;
  if (gave_up_ || is_being_recorded(device_)) return run_plainly(inputs, strings);
  std::unique_lock lock(mutex_, std::defer_lock);
  if (asked_) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return run_plainly(inputs, strings);
  }
  const auto found = runs_.get(key_of(inputs), [] { return std::make_unique<Runs>(); });
  Runs& runs = **found;
  if (runs.are_slower || (!runs.recorded && !asked_ && runs.plain++ < kPlainRuns)) {
    lock.unlock();
    return run_plainly(inputs, strings);
  }
  try {
    if (!runs.recorded) {
      runs.recorded = record(inputs, strings);
      runs.are_slower = !asked_ && is_slower(*runs.recorded, inputs, strings);
      if (runs.are_slower) runs.recorded.reset();
    }
  } catch (const std::exception& failure) {
    if (asked_) throw;
    lock.unlock();
    std::vector<IValue> results = run_plainly(inputs, strings);  // throws where the run itself fails
    gave_up_ = true;
    TORCH_WARN("runs on ", device_,
               " go on without CUDA graphs, which prepare(…, cuda_graphs=False) leaves out: ", text_of(failure));
    return results;
  }
  if (runs.recorded) return replayed(*runs.recorded, inputs);
  lock.unlock();
  return run_plainly(inputs, strings);
}

}  // namespace onnxtorch
