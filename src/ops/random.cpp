// Bernoulli, Multinomial, RandomNormal(Like), RandomUniform(Like).
#include <cmath>

#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Gives the seed. It gives the numbers that numpy's RandomState gives, as in onnx.reference, whose seeds are integers
// of 32 bits: a fraction is cut off, and what lies outside wraps around. A seed that is no finite number is none.
std::optional<int64_t> seed_of(const NodeView& n) {
  if (!n.has_attribute("seed")) return {};
  const double seed = n.attr_float("seed");
  if (!std::isfinite(seed)) return {};
  constexpr double kSeeds = 4294967296.0;
  const double wrapped = std::fmod(std::trunc(seed), kSeeds);
  return static_cast<int64_t>(wrapped < 0 ? wrapped + kSeeds : wrapped);
}

// Gives the type of the output: what dtype says, else the input's.
ElementType dtype_of(const NodeView& n) { return n.has_attribute("dtype") ? n.attr_element("dtype") : n.element(0); }

// Gives the shape of the output: that of the input, or what the attribute shape says.
Arg shape_of(Translator& t, const NodeView& n) {
  return n.has(0) ? Arg(t.call("aten::size", {n.tensor(0)})) : Arg(n.attr_ints("shape"));
}

Values random_normal(Translator& t, const NodeView& n) {
  const ElementType type = dtype_of(n);
  const Value x = t.call("normal_numbers", {shape_of(t, n), seed_of(n), type, t.device()});
  return {t.call("scaled", {x, n.attr_float("scale"), n.attr_float("mean")}).as(type)};
}

Values random_uniform(Translator& t, const NodeView& n) {
  const ElementType type = dtype_of(n);
  const double low = n.attr_float("low");
  // The range is rounded to float, as in onnx.reference.
  const float range = static_cast<float>(n.attr_float("high")) - static_cast<float>(low);
  const Value x = t.call("uniform_numbers", {shape_of(t, n), seed_of(n), type, t.device()});
  return {t.call("scaled", {x, static_cast<double>(range), low}).as(type)};
}

Values bernoulli(Translator& t, const NodeView& n) {
  const ElementType type = dtype_of(n);
  return {t.call("aten::to", {t.call("bernoulli", {n.tensor(0), seed_of(n)}), type}).as(type)};
}

Values multinomial(Translator& t, const NodeView& n) {
  const ElementType type = dtype_of(n);
  const Value x = t.call("multinomial", {n.tensor(0), n.attr_int("sample_size"), seed_of(n)});
  return {t.call("aten::to", {x, type}).as(type)};
}

}  // namespace

void register_random_ops(Registry& r) {
  r.op("RandomNormal").since(1, random_normal).reviewed_to(22);
  r.op("RandomNormalLike").since(1, random_normal).reviewed_to(22);
  r.op("RandomUniform").since(1, random_uniform).reviewed_to(22);
  r.op("RandomUniformLike").since(1, random_uniform).reviewed_to(22);
  r.op("Bernoulli").since(15, bernoulli).reviewed_to(22);
  r.op("Multinomial").since(7, multinomial).reviewed_to(22);
}

}  // namespace onnxtorch
