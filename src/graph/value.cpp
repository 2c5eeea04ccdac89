#include "graph/value.h"

namespace onnxtorch {
namespace {

// Replaces "prefix(inner)" by inner. Tells whether the text was of that form.
bool unwrap(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix) || text.size() < prefix.size() + 2 || text[prefix.size()] != '(' ||
      text.back() != ')') {
    return false;
  }
  text = text.substr(prefix.size() + 1, text.size() - prefix.size() - 2);
  return true;
}

}  // namespace

ValueType ValueType::parse(std::string_view text) {
  if (unwrap(text, "tensor")) return tensor(element_type_named(text));
  if (unwrap(text, "seq")) return sequence(parse(text));
  if (unwrap(text, "optional")) return optional(parse(text));
  if (unwrap(text, "map")) {
    const size_t comma = text.find(',');
    std::string_view value = text.substr(comma + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    const ValueType of = parse(value);
    return map(element_type_named(text.substr(0, comma)), of.known() ? of.element : element_type_named(value));
  }
  return {};
}

bool ValueType::operator==(const ValueType& other) const {
  if (kind != other.kind || element != other.element || key != other.key) return false;
  return !inner == !other.inner && (!inner || *inner == *other.inner);
}

std::string ValueType::str() const {
  switch (kind) {
    case Kind::Tensor:
      return "tensor(" + std::string(info(element).name) + ")";
    case Kind::Sequence:
      return "seq(" + inner->str() + ")";
    case Kind::Optional:
      return "optional(" + inner->str() + ")";
    case Kind::Map:
      return "map(" + std::string(info(key).name) + ", tensor(" + std::string(info(element).name) + "))";
  }
  return {};
}

}  // namespace onnxtorch
