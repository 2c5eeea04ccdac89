#include "ops/ml/ml.h"

#include <ATen/ops/tensor.h>
#include <onnx/onnx-ml.pb.h>

#include "ops/cast.h"
#include "ops/ops.h"

namespace onnxtorch {

Value listed(Translator& t, const NodeView& n, std::string_view name, ElementType type) {
  const onnx::AttributeProto* attribute = n.attribute(name);
  if (!attribute) return {};
  switch (attribute->type()) {
    case onnx::AttributeProto::INTS: return t.constant(at::tensor(n.attr_ints(name)), ElementType::Int64);
    case onnx::AttributeProto::FLOATS:
      return t.constant(at::tensor(n.attr_floats(name), storage_dtype(type)), type);
    case onnx::AttributeProto::STRINGS: return t.strings(n.attr_strings(name));
    default: return n.attr_tensor(name);
  }
}

Value first_listed(Translator& t, const NodeView& n, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (n.has_attribute(name)) return listed(t, n, name);
  }
  n.fail("one of the attributes " + names.front() + " … " + names.back() + " must be given");
}

ElementType computed_type(const NodeView& n) {
  const ElementType type = n.element(0);
  return type == ElementType::Float || type == ElementType::Float16 ? ElementType::Float : ElementType::Double;
}

Value features(Translator& t, const NodeView& n) { return cast(t, n.tensor(0), computed_type(n)); }

void register_ml_ops(Registry& r) {
  register_ml_feature_ops(r);
  register_ml_label_ops(r);
  register_ml_map_ops(r);
  register_ml_linear_ops(r);
  register_ml_svm_ops(r);
  register_ml_tree_ops(r);
}

}  // namespace onnxtorch
