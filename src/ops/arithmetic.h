// The functions that the element-wise families share: types stored wider than they are, shape arithmetic, old
// broadcasting.
#pragma once

#include <functional>
#include <string>

#include "translate/translator.h"

namespace onnxtorch {

// Brings the result of arithmetic on the stored dtype back into the range of the ONNX type.
Value wrapped(Translator& t, Value v, ElementType type);

// Gives values whose signed order is the order of `type`: uint64 with its highest bit flipped, all else as it is. Doing
// it twice gives the values back.
Value ordered(Translator& t, Value v, ElementType type);

bool is_unsigned(ElementType type);

// Casts integers on the host to int32 or int64.
Value host_cast(Translator& t, const Value& v, ElementType type);

// Do an operation on ints or int lists of the host, named like the ONNX operator that does it on tensors. Length 1
// broadcasts; two of rank 0 give one of rank 0. A comparison gives bools.
Value shape_arithmetic(Translator& t, const std::string& operation, const Value& a, const Value& b);
Value shape_comparison(Translator& t, const std::string& operation, const Value& a, const Value& b);
Value shape_where(Translator& t, const Value& condition, const Value& x, const Value& y);

// An operation on two tensors of one ONNX type.
using TensorOperation = std::function<Value(Translator&, const Value&, const Value&, ElementType)>;

// Make the translator that joins all inputs by an operation, from left to right: on the host where the inputs are
// there.
TranslateFunction arithmetic(TensorOperation operation);
TranslateFunction comparison(TensorOperation operation);

// Makes the translator of a call with the node's tensors as its arguments.
TranslateFunction plain(std::string function);

// Makes a translator for the opsets before 7, where the attribute `axis` says where B's dimensions lie in A's.
TranslateFunction legacy_broadcast(TranslateFunction modern);

}  // namespace onnxtorch
