#include "runtime/plan/workspace.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/arrange.h"
#include "base/interruption.h"
#include "base/work_memory.h"
#include "runtime/separated.h"

namespace onnxtorch {
namespace {

using c10::IValue;

constexpr size_t kMostKeptBytes = 1 << 18;  // allocators would keep so much, too

// Tells of which slots steps, or the caller, take tensors as such.
std::vector<bool> tensors_wanted(const Plan& plan) {
  std::vector<bool> wanted(plan.slots.size());
  const auto want = [&](const auto& self, size_t number) -> void {
    if (number == Step::kNone) return;
    wanted[number] = true;
    for (const size_t item : plan.slots[number].items) self(self, item);
  };
  for (const Step& step : plan.steps) {
    if (std::holds_alternative<Step::Planned>(step.what)) continue;
    for (const size_t number : step.arguments) want(want, number);
    for (const size_t number : step.results) want(want, number);
  }
  for (const size_t number : plan.results) want(want, number);
  return wanted;
}

at::Tensor tensor_in(const c10::Storage& storage, const TensorForm& form) {
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(form.type));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(form.sizes, form.strides, form.offset);
  if (form.is_number) t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

bool has_form_of(const at::Tensor& t, const TensorForm& form) {
  return t.sizes() == at::IntArrayRef(form.sizes) && t.strides() == at::IntArrayRef(form.strides) &&
         t.scalar_type() == form.type;
}

}  // namespace

Workspace::Workspace(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)),
      storages_(plan_->buffers.size()),
      held_(plan_->buffers.size()),
      places_(plan_->buffers.size()),
      bounds_(plan_->buffers.size(), std::numeric_limits<float>::infinity()),
      values_(plan_->slots.size()),
      results_(plan_->results.size(), Step::kNone) {
  give_back_work_memory();  // what was left by runs without an arena
  const std::vector<bool> wanted = tensors_wanted(*plan_);
  for (size_t i = 0; i < plan_->slots.size(); ++i) {
    const Slot& slot = plan_->slots[i];
    if (slot.kind == Slot::Kind::Constant) values_[i] = slot.constant;
    if (slot.kind != Slot::Kind::Tensor || !wanted[i]) continue;
    c10::Storage& storage = storages_[slot.form.buffer];
    if (!storage) {
      storage = c10::Storage(c10::Storage::use_byte_size_t(), plan_->buffers[slot.form.buffer].bytes,
                             at::DataPtr(nullptr, c10::kCPU));
    }
    values_[i] = tensor_in(storage, slot.form);
  }
  for (size_t i = 0; i < plan_->slots.size(); ++i) {
    const Slot& slot = plan_->slots[i];
    const bool is_argument = slot.kind == Slot::Kind::Several && std::ranges::count(slot.items, Step::kNone) == 0;
    if (!is_argument || !wanted[i]) continue;
    std::vector<IValue> items;
    for (const size_t item : slot.items) items.push_back(values_[item]);
    values_[i] = joined(*slot.type, std::move(items));
  }
  for (size_t i = 0; i < plan_->buffers.size(); ++i) {
    const Buffer& buffer = plan_->buffers[i];
    places_[i].bound = &bounds_[i];
    if (buffer.kind == Buffer::Kind::Constant) bind(i, const_cast<void*>(buffer.constant.const_data_ptr()));
    if (buffer.kind == Buffer::Kind::Input) inputs_.push_back(i);
    if (buffer.result) results_[*buffer.result] = i;
  }
}

void Workspace::bind(size_t buffer, void* data) {
  places_[buffer].data = static_cast<char*>(data);
  if (storages_[buffer]) {
    storages_[buffer].unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(data, c10::kCPU));
  }
}

// Takes memory for the arena. A large one goes back to the model's work memory after a run, and is most often what that
// gives the next time.
void Workspace::take_arena() {
  if (!arena_.defined()) arena_ = work_tensor({static_cast<int64_t>(plan_->arena_bytes)}, c10::kByte);
  auto* const data = arena_.mutable_data_ptr<uint8_t>();
  if (data == std::exchange(arena_data_, data)) return;
  for (size_t i = 0; i < plan_->buffers.size(); ++i) {
    if (plan_->buffers[i].kind == Buffer::Kind::Arena) bind(i, data + plan_->buffers[i].offset);
  }
}

void Workspace::hold(size_t buffer, at::Tensor tensor) {
  bind(buffer, tensor.mutable_data_ptr());
  held_[buffer] = std::move(tensor);
}

void Workspace::push_arguments(const Step& step) {
  for (const size_t slot : step.arguments) stack_.push_back(values_[slot]);
}

// Takes a result of a step that has allocated it. The tensors that are views of it look at its memory from now on.
void Workspace::take_tensor(const TensorForm& form, at::Tensor given) {
  if (given.sizes() != at::IntArrayRef(form.sizes) || given.scalar_type() != form.type) {
    throw OtherForm("a tensor has another shape than in a run of the same sizes before");
  }
  const bool is_alone = given.use_count() == 1 && given.storage().use_count() == 1;
  if (!is_alone || given.strides() != at::IntArrayRef(form.strides) || given.storage_offset() != 0) {
    const size_t bytes = plan_->buffers[form.buffer].bytes;
    at::Tensor room = at::detail::empty_cpu({static_cast<int64_t>(bytes)}, c10::kByte);
    bind(form.buffer, room.mutable_data_ptr());
    held_[form.buffer] = room;
    tensor_in(room.storage(), form).copy_(given);
    return;
  }
  hold(form.buffer, std::move(given));
}

void Workspace::take(size_t number, IValue value) {
  const Slot& slot = plan_->slots[number];
  switch (slot.kind) {
    case Slot::Kind::Tensor:
      return take_tensor(slot.form, std::move(value).toTensor());
    case Slot::Kind::Several: {
      c10::List<at::Tensor> list = std::move(value).toTensorList();
      if (list.size() != slot.items.size())
        throw OtherForm("a list has another length than in a run of the same sizes");
      for (size_t i = 0; i < list.size(); ++i) {
        if (slot.items[i] != Step::kNone) take(slot.items[i], list.extract(i));
      }
      return;
    }
    case Slot::Kind::Open:
      if (slot.dims && (value.toTensor().dim() != *slot.dims || value.toTensor().scalar_type() != slot.element)) {
        throw OtherForm("a tensor has other dimensions than in a run of the same sizes before");
      }
      [[fallthrough]];
    case Slot::Kind::Constant:
      values_[number] = std::move(value);
  }
}

void Workspace::take_results(const Step& step) {
  const size_t first = stack_.size() - step.results.size();
  for (size_t i = 0; i < step.results.size(); ++i) {
    if (step.results[i] != Step::kNone) take(step.results[i], std::move(stack_[first + i]));
  }
  stack_.clear();
}

void Workspace::run(const Step& step) {
  if (const auto* const planned = std::get_if<Step::Planned>(&step.what)) {
    c10::SmallVector<TensorPlace, 16> places;
    for (const PlannedPlace& place : planned->places) {
      places.push_back({places_[place.buffer].data + place.offset, places_[place.buffer].bound});
    }
    planned->call->run({places.data(), places.size()});
  } else if (const auto* const into = std::get_if<Step::CallInto>(&step.what)) {
    push_arguments(step);
    into->operation.callBoxed(&stack_);
    stack_.clear();
  } else if (const auto* const call = std::get_if<Step::Call>(&step.what)) {
    push_arguments(step);
    call->operation(stack_);
    take_results(step);
  } else {
    for (const size_t slot : step.arguments) stack_.push_back(apart(values_[slot]));
    torch::jit::InterpreterState(*std::get<Step::Interpret>(step.what).code).run(stack_);
    take_results(step);
  }
  for (const size_t buffer : step.last_buffers) held_[buffer].reset();
  for (const size_t slot : step.last_slots) values_[slot] = {};
}

IValue Workspace::result(size_t number) {
  const Slot& slot = plan_->slots[number];
  if (slot.kind == Slot::Kind::Open && std::ranges::count(plan_->results, number) == 1) {
    return separated(std::exchange(values_[number], {}));
  }
  if (slot.kind != Slot::Kind::Tensor) return separated(values_[number]);
  const at::Tensor& t = values_[number].toTensor();
  return t.is_contiguous() ? copy_of(t) : snug(contiguous(t));
}

std::vector<IValue> Workspace::run(std::span<const IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
                                   const Targets& targets) {
  take_arena();
  std::ranges::fill(bounds_, std::numeric_limits<float>::infinity());
  for (const size_t buffer : inputs_) {
    bind(buffer, const_cast<void*>(inputs[plan_->buffers[buffer].input].toTensor().const_data_ptr()));
  }
  if (plan_->strings != Step::kNone) values_[plan_->strings] = strings;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (results_[i] == Step::kNone || plan_->buffers[results_[i]].kind != Buffer::Kind::Result) continue;
    const TensorForm& form = plan_->slots[plan_->results[i]].form;
    const bool has_target = i < targets.size() && targets[i].defined() && has_form_of(targets[i], form);
    hold(results_[i], has_target ? targets[i] : work_tensor(form.sizes, form.strides, form.type));
  }
  for (const Step& step : plan_->steps) {
    check_interruption();
    run(step);
  }
  // Results that are copied come first: they may lie in memory that is given away with other results.
  std::vector<IValue> results(plan_->results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (results_[i] == Step::kNone) results[i] = result(plan_->results[i]);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results_[i] == Step::kNone) continue;
    const at::Tensor held = std::exchange(held_[results_[i]], {});
    const TensorForm& form = plan_->slots[plan_->results[i]].form;
    results[i] = snug(has_form_of(held, form) ? held : tensor_in(held.storage(), form));
  }
  for (at::Tensor& held : held_) held.reset();
  if (plan_->strings != Step::kNone) values_[plan_->strings] = {};
  if (plan_->arena_bytes > kMostKeptBytes) arena_.reset();
  return results;
}

}  // namespace onnxtorch
