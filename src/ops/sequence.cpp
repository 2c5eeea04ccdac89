// SequenceConstruct, SequenceEmpty, SequenceAt, SequenceInsert, SequenceErase, SequenceLength, SplitToSequence,
// ConcatFromSequence.
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

ValueType item_type(const NodeView& n) {
  const ValueType type = n.input(0).type;
  return type.kind == ValueType::Kind::Sequence ? *type.inner : ValueType{};
}

Values sequence_construct(Translator& t, const NodeView& n) {
  return {t.list(n.tensors()).as(ValueType::sequence(n.input(0).type))};
}

Values sequence_empty(Translator& t, const NodeView& n) {
  const ElementType element = n.has_attribute("dtype") ? n.attr_element("dtype") : ElementType::Float;
  return {t.list({}).as(ValueType::sequence(ValueType::tensor(element)))};
}

Values sequence_at(Translator& t, const NodeView& n) {
  return {t.call("aten::__getitem__", {n.input(0), n.integer(1)}).as(item_type(n))};
}

Values sequence_length(Translator& t, const NodeView& n) { return {t.call("aten::len", {n.input(0)})}; }

// Translates SequenceInsert. The result's item type is the input's for a sequence, the item's for a list made of
// tensors.
Values sequence_insert(Translator& t, const NodeView& n) {
  return {t.call("sequence_insert", {n.input(0), n.tensor(1), n.integer(2)}).as(ValueType::sequence(n.input(1).type))};
}

Values concat_from_sequence(Translator& t, const NodeView& n) {
  const char* join = n.attr_int("new_axis") ? "aten::stack" : "aten::cat";
  return {t.call(join, {n.input(0), n.attr_int("axis")}).as(item_type(n))};
}

// Translates SplitToSequence. Without split there are pieces of length 1, whose dimension keepdims=0 drops. A scalar
// split is the length of all pieces.
Values split_to_sequence(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  const int64_t axis = n.attr_int("axis");
  Value pieces;
  if (!n.has(1)) {
    pieces = n.attr_int("keepdims") ? t.call("pieces_of", {x, 1, axis}) : t.call("elements_of", {x, axis});
  } else {
    pieces = t.call("split_to_sequence", {x, n.tensor(1), n.ints(1), axis});
  }
  return {pieces.as(ValueType::sequence(n.input(0).type))};
}

}  // namespace

void register_sequence_ops(Registry& r) {
  r.op("SequenceConstruct").since(11, sequence_construct);
  r.op("SequenceEmpty").since(11, sequence_empty);
  r.op("SequenceAt").since(11, sequence_at);
  r.op("SequenceInsert").since(11, sequence_insert);
  r.op("SequenceErase").since(11, script("sequence_erase"));
  r.op("SequenceLength").since(11, sequence_length);
  r.op("ConcatFromSequence").since(11, concat_from_sequence);
  r.op("SplitToSequence").since(11, split_to_sequence).reviewed_to(24);
}

}  // namespace onnxtorch
