#include "runtime/executable.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <unordered_set>

namespace onnxtorch {
namespace {

using c10::IValue;

// Gives each result memory of its own.
class Separator {
 public:
  void taken(const IValue& value) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage())
      taken_.insert(memory(value.toTensor()));
    if (value.isList()) {
      for (const IValue& item : value.toListRef()) taken(item);
    }
    if (value.isTuple()) {
      for (const IValue& item : value.toTupleRef().elements()) taken(item);
    }
  }

  IValue separate(const IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      const at::Tensor& t = value.toTensor();
      const at::Tensor own = taken_.insert(memory(t)).second ? t.contiguous() : t.clone(at::MemoryFormat::Contiguous);
      return own.detach();
    }
    if (value.isList()) {
      c10::impl::GenericList items(value.toList().elementType());
      for (const IValue& item : value.toListRef()) items.push_back(separate(item));
      return items;
    }
    if (value.isTuple()) {
      std::vector<IValue> items;
      for (const IValue& item : value.toTupleRef().elements()) items.push_back(separate(item));
      return c10::ivalue::Tuple::create(std::move(items));
    }
    return value;
  }

 private:
  // The start of the storage: views of one tensor share it.
  static const void* memory(const at::Tensor& t) { return t.storage().unsafeGetStorageImpl(); }

  std::unordered_set<const void*> taken_;
};

}  // namespace

Executable::Executable(Program program) : program_(std::move(program)), code_(program_.graph, "onnx_model") {}

std::vector<IValue> Executable::run(std::vector<IValue> inputs, const c10::intrusive_ptr<StringPool>& strings) const {
  const c10::InferenceMode inference(!program_.needs_autograd);
  Separator separator;
  torch::jit::Stack stack;
  stack.reserve(program_.graph_inputs.size());
  size_t next = 0;
  for (const GraphInput& input : program_.graph_inputs) {
    switch (input.role) {
      case GraphInput::Role::Input:
        stack.push_back(std::move(inputs[next++]));
        break;
      case GraphInput::Role::Bound:
        stack.emplace_back(program_.bound[input.index].value);
        break;
      case GraphInput::Role::Strings:
        stack.emplace_back(strings);
        break;
    }
    separator.taken(stack.back());
  }
  torch::jit::InterpreterState(code_).run(stack);
  for (IValue& result : stack) result = separator.separate(result);
  return stack;
}

}  // namespace onnxtorch
