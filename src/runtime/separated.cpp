#include "runtime/separated.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "base/arrange.h"
#include "base/work_memory.h"

namespace onnxtorch {

using c10::IValue;

IValue separated(IValue value) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor t = std::move(value).toTensor();
    const bool alone = t.use_count() == 1 && t.storage().use_count() == 1;
    const at::Tensor own = alone || !t.is_contiguous() ? snug(contiguous(t)) : copy_of(t);
    return own.requires_grad() ? own.detach() : own;
  }
  if (value.isList()) {
    const c10::impl::GenericList items = std::move(value).toList();
    c10::impl::GenericList own(items.elementType());
    own.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      own.push_back(separated(items.use_count() == 1 ? items.extract(i) : items.get(i)));
    }
    return own;
  }
  if (value.isTuple()) {
    std::vector<IValue> items;
    for (const IValue& item : value.toTupleRef().elements()) items.push_back(separated(item));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  return value;
}

void separate(std::vector<IValue>& results, const Targets& targets) {
  for (size_t i = 0; i < results.size(); ++i) {
    const bool is_callers = i < targets.size() && targets[i].defined() && results[i].isTensor() &&
                            results[i].toTensor().is_same(targets[i]);
    if (!is_callers) results[i] = separated(std::move(results[i]));
  }
}

}  // namespace onnxtorch
