#include "runtime/plan/plan.h"

#include <ATen/core/Formatting.h>
#include <ATen/core/jit_type.h>

#include <array>
#include <sstream>
#include <utility>

namespace onnxtorch {

c10::IValue joined(const c10::Type& type, std::vector<c10::IValue> items) {
  if (type.kind() == c10::TypeKind::TupleType) return c10::ivalue::Tuple::create(std::move(items));
  c10::impl::GenericList list(type.expectRef<c10::ListType>().getElementType());
  list.reserve(items.size());
  for (c10::IValue& item : items) list.push_back(std::move(item));
  return list;
}

namespace {

const char* way_of(const Step& step) {
  static constexpr std::array kWays = {"call", "into", "part", "plan"};
  return kWays[step.what.index()];
}

void write(std::ostream& out, const Plan& plan, size_t number) {
  if (number == Step::kNone) {
    out << "-";
    return;
  }
  const Slot& slot = plan.slots[number];
  switch (slot.kind) {
    case Slot::Kind::Constant:
      if (slot.constant.isTensor() && slot.constant.toTensor().defined()) {
        out << "constant" << slot.constant.toTensor().sizes();
      } else if (slot.constant.isObject()) {
        out << "object";
      } else {
        out << slot.constant;
      }
      break;
    case Slot::Kind::Tensor:
      out << "%" << slot.form.buffer << c10::toString(slot.form.type) << at::IntArrayRef(slot.form.sizes);
      break;
    case Slot::Kind::Open:
      out << "open" << number;
      break;
    case Slot::Kind::Several:
      out << "(";
      for (const size_t item : slot.items) {
        write(out, plan, item);
        out << " ";
      }
      out << ")";
  }
}

}  // namespace

std::string text_of(const Plan& plan) {
  std::ostringstream out;
  for (const Step& step : plan.steps) {
    out << way_of(step) << " " << step.name << ":";
    for (const size_t number : step.arguments) write(out << " ", plan, number);
    out << " ->";
    for (const size_t number : step.results) write(out << " ", plan, number);
    out << "\n";
  }
  out << plan.arena_bytes << " bytes of intermediate values\n";
  return out.str();
}

}  // namespace onnxtorch
