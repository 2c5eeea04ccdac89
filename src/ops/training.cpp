// ai.onnx.preview.training: Gradient, Adagrad, Adam, Momentum.
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Translates Gradient. Its inputs are the values of xs and zs again; the graph that leads from xs to y is already
// there, and the translator has made xs its leaves.
Values gradient(Translator& t, const NodeView& n) {
  const Value y = t.tensor(t.named(n.attr_string("y")));
  Values xs;
  for (const std::string& name : n.attr_strings("xs")) xs.push_back(t.named(name));
  const Value gradients = t.call("gradients", {y, t.list(xs)});
  Values results;
  for (size_t i = 0; i < xs.size(); ++i) {
    results.push_back(t.call("aten::__getitem__", {gradients, static_cast<int64_t>(i)}).as(xs[i].type));
  }
  return results;
}

}  // namespace

void register_training_ops(Registry& r) {
  constexpr const char* kDomain = "ai.onnx.preview.training";
  r.op(kDomain, "Gradient").since(1, gradient);
  r.op(kDomain, "Adagrad").since(1, script("adagrad"));
  r.op(kDomain, "Adam").since(1, script("adam"));
  r.op(kDomain, "Momentum").since(1, script("momentum"));
}

}  // namespace onnxtorch
