// The operators that move elements, matrices of distances and of costs, Fourier transforms, and other names of the
// standard's.
#include "ops/arithmetic.h"
#include "ops/contrib/contrib.h"
#include "ops/contrib/fused.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Gives the translator of the standard's operator as a version has it.
TranslateFunction standard(const Registry& r, const char* op, int version) { return *r.find("", op, version); }

Values expand_dims(Translator& t, const NodeView& n) {
  return {t.call("aten::unsqueeze", {n.tensor(0), n.integer(1)}).as(n.element(0))};
}

// Makes the translator of GridSample. Images that are not of floating numbers are made so, as the output is. Nothing
// lies between two strings, and the output holds no complex number.
TranslateFunction grid_sample(const TranslateFunction& standard) {
  return [standard](Translator& t, const NodeView& n) -> Values {
    const ElementType type = n.element(0);
    if (is_floating(type)) return {standard(t, n)[0].as(type)};
    if (type == ElementType::String || type == ElementType::Complex64 || type == ElementType::Complex128) {
      n.fail("the images must be of real numbers");
    }
    Values floats;
    for (const Value& v : n.tensors()) {
      floats.push_back(t.call("aten::to", {v, ElementType::Float}).as(ElementType::Float));
    }
    return {standard(t, with_inputs(t, n, floats))[0].as(ElementType::Float)};
  };
}

// Makes the translator of Range, which goes up by one where delta is absent.
TranslateFunction range(const TranslateFunction& standard) {
  return [standard](Translator& t, const NodeView& n) {
    const Value delta = n.has(2) ? n.input(2) : t.scalar(1).as(ElementType::Int64);
    return standard(t, with_inputs(t, n, {n.input(0), n.input(1), delta}));
  };
}

// Translates Unique, which gives the elements in the order in which they first come; the standard's has another output
// before the last two.
Values unique(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  const Values found = n.element(0) == ElementType::String
                           ? t.call_all("onnx_torch::unique_strings", {t.string_pool(), x, none, false})
                           : t.call_all("onnx_torch::unique", {x, none, false, n.element(0) == ElementType::Uint64});
  return {found[0], found[2], found[3]};
}

// Translates SparseToDenseMatMul, whose sparse matrix comes as a dense one.
Values sparse_to_dense_matmul(Translator& t, const NodeView& n) {
  const Value y = t.call("scaled_product", {n.tensor(0), n.tensor(1), n.attr_float("alpha"), n.attr_int("transA") != 0,
                                            n.attr_int("transB") != 0});
  return {wrapped(t, y, n.element(1)).as(n.element(1))};
}

}  // namespace

void register_contrib_tensor_ops(Registry& r) {
  r.op(kMicrosoft, "BifurcationDetector").since(1, script("bifurcation_detector"));
  r.op(kMicrosoft, "CDist").since(1, script("cdist"));
  r.op(kMicrosoft, "CropAndResize").since(1, script("crop_and_resize"));
  r.op(kMicrosoft, "DynamicTimeWarping").since(1, script("dynamic_time_warping"));
  r.op(kMicrosoft, "ExpandDims").since(1, expand_dims);
  r.op(kMicrosoft, "GatherND").since(1, standard(r, "GatherND", 11));
  r.op(kMicrosoft, "GridSample").since(1, grid_sample(standard(r, "GridSample", 16)));
  r.op(kMicrosoft, "Inverse").since(1, script("inverse"));
  r.op(kMicrosoft, "Irfft").since(1, script("irfft"));
  r.op(kMicrosoft, "Pad").since(1, standard(r, "Pad", 19));
  r.op(kMicrosoft, "Range").since(1, range(standard(r, "Range", 11)));
  r.op(kMicrosoft, "Rfft").since(1, script("rfft"));
  r.op(kMicrosoft, "SampleOp").since(1, standard(r, "Identity", 1));
  r.op(kMicrosoft, "SparseToDenseMatMul").since(1, sparse_to_dense_matmul);
  r.op(kMicrosoft, "Trilu").since(1, standard(r, "Trilu", 14));
  r.op(kMicrosoft, "UnfoldTensor").since(1, script("unfold_tensor"));
  r.op(kMicrosoft, "Unique").since(1, unique);
  for (const char* domain : {"", "trt", "TRT"}) r.op(domain, "EfficientNMS_TRT").since(1, script("efficient_nms"));
  r.op("", "MemcpyFromHost").since(1, standard(r, "Identity", 1));
  r.op("", "MemcpyToHost").since(1, standard(r, "Identity", 1));
}

}  // namespace onnxtorch
