// The names and schemas of operators that more than one file looks for.
#pragma once

#include <ATen/core/symbol.h>

namespace onnxtorch {

inline const auto kQuantize = c10::Symbol::fromQualString("onnx_torch::quantize");
inline const auto kDequantize = c10::Symbol::fromQualString("onnx_torch::dequantize");
inline const auto kDequantizeAlong = c10::Symbol::fromQualString("onnx_torch::dequantize_along");
inline const auto kGather = c10::Symbol::fromQualString("onnx_torch::gather");
inline const auto kGatherElements = c10::Symbol::fromQualString("onnx_torch::gather_elements");
inline const auto kScatterElements = c10::Symbol::fromQualString("onnx_torch::scatter_elements");
inline const auto kScaledIntegerProduct = c10::Symbol::fromQualString("onnx_torch::scaled_integer_product");

constexpr auto kCheckNode = "onnx_torch::check_node";  // stands in front of a node
constexpr auto kCheckRun = "onnx_torch::check_run";    // stands in front of an iteration

constexpr auto kAdd = "aten::add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor";
constexpr auto kSub = "aten::sub(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor";
constexpr auto kMul = "aten::mul(Tensor self, Tensor other) -> Tensor";
constexpr auto kDiv = "aten::div(Tensor self, Tensor other) -> Tensor";
constexpr auto kRelu = "aten::relu(Tensor self) -> Tensor";
constexpr auto kRound = "aten::round(Tensor self) -> Tensor";
constexpr auto kWhere = "aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor";
constexpr auto kTo =
    "aten::to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? "
    "memory_format=None) -> Tensor(a)";
constexpr auto kPad = "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor";
constexpr auto kReshape = "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)";
constexpr auto kPermute = "aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)";
constexpr auto kSelect = "aten::select.int(Tensor(a) self, int dim, int index) -> Tensor(a)";
constexpr auto kSlice =
    "aten::slice.Tensor(Tensor(a) self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor(a)";
constexpr auto kTransposeMatrix = "aten::t(Tensor(a) self) -> Tensor(a)";
constexpr auto kAddmm =
    "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor";
constexpr auto kConvolution =
    "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] "
    "dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor";

}  // namespace onnxtorch
