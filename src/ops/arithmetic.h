// What the element-wise families share: types stored wider than they are, shape arithmetic, old broadcasting.
#pragma once

#include <functional>
#include <string>

#include "translate/translator.h"

namespace onnxtorch {

// The result of arithmetic on the stored dtype, brought back into the range of the ONNX type.
Value wrapped(Translator& t, Value v, ElementType type);

// Values whose signed order is the order of `type`: uint64 with its highest bit flipped, all else as it is. Twice is
// not at all.
Value ordered(Translator& t, Value v, ElementType type);

bool is_unsigned(ElementType type);

// Integers on the host as int32 or int64.
Value host_cast(Translator& t, const Value& v, ElementType type);

// An operation on ints or int lists of the host, named like the ONNX operator that does it on tensors. Length 1
// broadcasts; two of rank 0 give one of rank 0. A comparison gives bools.
Value shape_arithmetic(Translator& t, const std::string& operation, const Value& a, const Value& b);
Value shape_comparison(Translator& t, const std::string& operation, const Value& a, const Value& b);
Value shape_where(Translator& t, const Value& condition, const Value& x, const Value& y);

// An operation on two tensors of one ONNX type.
using TensorOperation = std::function<Value(Translator&, const Value&, const Value&, ElementType)>;

// The translator that joins all inputs by an operation, from left to right: on the host where they are there.
TranslateFunction arithmetic(TensorOperation operation);
TranslateFunction comparison(TensorOperation operation);

// A call with the node's tensors as its arguments.
TranslateFunction plain(std::string function);

// A translator for the opsets before 7, where the attribute `axis` says where B's dimensions lie in A's.
TranslateFunction legacy_broadcast(TranslateFunction modern);

}  // namespace onnxtorch
