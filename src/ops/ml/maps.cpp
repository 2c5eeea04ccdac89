// The operators between tensors and maps: CastMap, DictVectorizer, ZipMap.
#include "ops/cast.h"
#include "ops/ml/ml.h"

namespace onnxtorch {
namespace {

using enum ElementType;

ElementType type_cast_to(const NodeView& n) {
  const std::string name = n.attr_string("cast_to");
  if (name == "TO_FLOAT") return Float;
  if (name == "TO_INT64") return Int64;
  if (name == "TO_STRING") return String;
  n.fail("cast_to is TO_FLOAT, TO_STRING or TO_INT64, not " + name);
}

Values cast_map(Translator& t, const NodeView& n) {
  const Values parts = t.call_all("map_parts", {n.input(0)});
  const Value values = cast(t, parts[1].as(n.element(0)), type_cast_to(n));
  const std::string form = n.attr_string("map_form");
  if (form == "DENSE") return {t.call("dense_map", {parts[0], values}).as(values.type)};
  if (form != "SPARSE") n.fail("map_form is DENSE or SPARSE, not " + form);
  return {t.call("sparse_map", {parts[0], values, n.attr_int("max_map")}).as(values.type)};
}

Values dict_vectorizer(Translator& t, const NodeView& n) {
  const Stored vocabulary = first_listed(t, n, {"string_vocabulary", "int64_vocabulary"});
  if (vocabulary.type != n.input(0).type.key) n.fail("the vocabulary and the keys differ in type");
  return {t.call("dict_vectorizer", {n.input(0), stored_constant(t, vocabulary)}).as(n.element(0))};
}

Values zip_map(Translator& t, const NodeView& n) {
  const Stored labels = first_listed(t, n, {"classlabels_strings", "classlabels_int64s"});
  const ValueType map = ValueType::map(labels.type, Float);
  return {t.call("zip_map", {n.tensor(0), stored_constant(t, labels)}).as(ValueType::sequence(map))};
}

}  // namespace

void register_ml_map_ops(Registry& r) {
  r.op(kMl, "CastMap").since(1, cast_map);
  r.op(kMl, "DictVectorizer").since(1, dict_vectorizer);
  r.op(kMl, "ZipMap").since(1, zip_map);
}

}  // namespace onnxtorch
