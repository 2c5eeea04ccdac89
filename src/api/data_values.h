// The conversions between the public Data and values in storage form.
#pragma once

#include "onnx_torch/data.h"
#include "runtime/model.h"

namespace onnxtorch {

Fed fed_from_data(const Data& data, const ValueType& expected, const std::string& input, StringPool& strings);
Data data_from_value(const c10::IValue& value, const ValueType& type, const StringPool& strings);

}  // namespace onnxtorch
