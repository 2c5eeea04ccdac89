#include "api/data_values.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "import/storage.h"
#include "runtime/torch_tensor.h"

namespace onnxtorch {
namespace {

using c10::IValue;
using Kind = ValueType::Kind;
using Column = std::variant<at::Tensor, Strings>;

Fed fed_from_strings(const Strings& given, const std::string& input, StringPool& strings) {
  const at::Tensor ids = at::empty(given.sizes, c10::kLong);
  if (ids.numel() != static_cast<int64_t>(given.values.size())) {
    throw InputError("the input \"" + input + "\" has " + std::to_string(given.values.size()) +
                     " strings, and sizes for " + std::to_string(ids.numel()));
  }
  std::ranges::transform(given.values, ids.data_ptr<int64_t>(),
                         [&](const std::string& text) { return strings.intern(text); });
  return {ValueType::tensor(ElementType::String), ids};
}

// A visitor that makes a Fed of each kind of Data; `expected` is what the input's type says at this place.
struct Feeder {
  const ValueType& expected;
  const std::string& input;
  StringPool& strings;

  Fed operator()(std::monostate) const { return {expected, IValue()}; }
  Fed operator()(const at::Tensor& tensor) const { return fed_from_tensor(tensor, expected.element, input); }
  Fed operator()(const Strings& given) const { return fed_from_strings(given, input, strings); }
  Fed operator()(const Sequence& sequence) const {
    ValueType inner = expected.kind == Kind::Sequence ? *expected.inner : ValueType{};
    c10::impl::GenericList values(torchscript_type(inner));
    for (const Data& item : sequence.items) {
      Fed fed = fed_from_data(item, inner, input, strings);
      inner = fed.type;
      values.push_back(std::move(fed.value));
    }
    return {ValueType::sequence(inner), values};
  }
  Fed operator()(const Map& map) const {
    const auto column = [&](const Column& given, ElementType element) {
      return std::visit(Feeder{ValueType::tensor(element), input, strings}, given);
    };
    const Fed keys = column(map.keys, expected.key), values = column(map.values, expected.element);
    return {ValueType::map(keys.type.element, values.type.element),
            c10::ivalue::Tuple::create({keys.value, values.value})};
  }
};

Column column_from(const at::Tensor& stored, ElementType type, const StringPool& strings) {
  if (type == ElementType::Undefined) type = element_type_of(stored.scalar_type());  // an ATen node gave it
  if (type != ElementType::String) return torch_tensor(stored, type);
  const at::Tensor ids = stored.cpu().contiguous();
  Strings texts{{}, ids.sizes().vec()};
  for (const int64_t id : std::span(ids.data_ptr<int64_t>(), static_cast<size_t>(ids.numel())))
    texts.values.push_back(strings.at(id));
  return texts;
}

}  // namespace

Fed fed_from_data(const Data& data, const ValueType& expected, const std::string& input, StringPool& strings) {
  if (expected.kind == Kind::Optional && !data.absent()) {
    Fed inner = fed_from_data(data, *expected.inner, input, strings);
    return {ValueType::optional(inner.type), std::move(inner.value)};
  }
  return std::visit(Feeder{expected, input, strings}, data.value());
}

Data data_from_value(const IValue& value, const ValueType& type, const StringPool& strings) {
  if (value.isNone()) return {};
  switch (type.kind) {
    case Kind::Optional:
      return data_from_value(value, *type.inner, strings);
    case Kind::Sequence: {
      Sequence sequence;
      for (const IValue& item : value.toListRef())
        sequence.items.push_back(data_from_value(item, *type.inner, strings));
      return sequence;
    }
    case Kind::Map: {
      const auto& parts = value.toTupleRef().elements();
      return Map{column_from(parts[0].toTensor(), type.key, strings),
                 column_from(parts[1].toTensor(), type.element, strings)};
    }
    case Kind::Tensor:
      break;
  }
  return std::visit([](auto column) -> Data { return column; }, column_from(value.toTensor(), type.element, strings));
}

}  // namespace onnxtorch
