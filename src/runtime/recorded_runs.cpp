#include "runtime/recorded_runs.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "runtime/to_device.h"

namespace onnxtorch {
namespace {

using c10::IValue;

constexpr size_t kKept = 8;

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

RecordedRuns::RecordedRuns(std::shared_ptr<const Executable> executable, c10::Device device)
    : executable_(std::move(executable)), device_(device), recordings_(kKept) {}

RecordedRuns::Key RecordedRuns::key_of(std::span<const IValue> inputs) {
  Key key;
  for (const IValue& input : inputs) key.emplace_back(input.toTensor().scalar_type(), input.toTensor().sizes().vec());
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

std::vector<IValue> RecordedRuns::run(std::span<const IValue> inputs, const c10::intrusive_ptr<StringPool>& strings) {
  const c10::InferenceMode inference;
  const std::lock_guard lock(mutex_);
  const auto recorded = recordings_.get(key_of(inputs), [&] { return record(inputs, strings); });
  const Recorded& found = **recorded;
  std::vector<IValue> results;
  found.recording->replay([&] { copy(inputs, found.inputs); },
                          [&] {
                            for (const IValue& result : found.results) results.push_back(copied(result));
                          });
  return results;
}

}  // namespace onnxtorch
