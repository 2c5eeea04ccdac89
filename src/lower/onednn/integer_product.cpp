// MatMulInteger with a constant matrix of 8 bits: exact sums in int32.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>

#include "lower/onednn/laid_weight.h"
#include "lower/onednn/packed.h"
#include "lower/onednn/primitives.h"

namespace onnxtorch {
namespace onednn {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

struct Prepared {
  dnnl::primitive primitive;
  dnnl::memory::desc source, result, scratchpad;
  Laid weight;
};

// oneDNN's weights are signed.
at::Tensor as_signed(const at::Tensor& t) {
  return t.scalar_type() == c10::kByte ? at::sub(t.to(c10::kShort), 128).to(c10::kChar) : t;
}

class PackedIntegers final : public PackedIntegerProduct {
 public:
  PackedIntegers(const at::Tensor& weight, int64_t zero_point)
      : weight_(as_signed(weight).contiguous()),
        zero_point_(at::full({1}, weight.scalar_type() == c10::kByte ? zero_point - 128 : zero_point, c10::kInt)) {}

  at::Tensor run(const at::Tensor& given, const at::Tensor& zero_point) const override {
    const int64_t in = weight_.size(0), out = weight_.size(1);
    const bool fits = given.scalar_type() == c10::kByte && given.numel() > 0 && given.dim() > 0 &&
                      given.size(-1) == in && zero_point.numel() == 1;
    if (!fits) return plainly(given, zero_point);
    const at::Tensor x = given.contiguous(), offset = zero_point.reshape({1}).to(c10::kInt);
    const std::vector<int64_t> key{x.numel() / in, at::get_num_threads()};
    const auto p = recent_.get(key, [&] { return prepare(key[0]); });
    if (!p->primitive) return plainly(given, zero_point);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = out;
    const at::Tensor y = at::empty(sizes, c10::kInt);
    const dnnl::memory::desc one({1}, Type::s32, Tag::a);
    Call call;
    call.with(DNNL_ARG_SRC, p->source, x).with(DNNL_ARG_WEIGHTS, p->weight.memory).with(DNNL_ARG_DST, p->result, y);
    call.with(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, one, offset);
    call.with(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS, one, zero_point_);
    call.run(p->primitive, p->scratchpad);
    return y;
  }

  void expect(at::IntArrayRef) const override {}

  // The layouts hold more than oneDNN tells of them.
  std::vector<SavedWeights> saved() const override { return {}; }
  void take(std::vector<SavedWeights>) const override {}

 private:
  Prepared prepare(int64_t rows) const {
    const int64_t in = weight_.size(0), out = weight_.size(1);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
    attr.set_zero_points_mask(DNNL_ARG_WEIGHTS, 0);
    const dnnl::memory::desc source({rows, in}, Type::u8, Tag::ab), result({rows, out}, Type::s32, Tag::ab);
    const dnnl::matmul::primitive_desc description(engine(), source, {{in, out}, Type::s8, Tag::any}, result, attr);
    if (is_reference(description)) return {};
    return {dnnl::matmul(description), source, result, description.scratchpad_desc(),
            laid_.get(borrowed({{in, out}, Type::s8, Tag::ab}, weight_), description.weights_desc())};
  }

  at::Tensor plainly(const at::Tensor& x, const at::Tensor& zero_point) const {
    const at::Tensor centred = at::sub(x.to(c10::kDouble), zero_point.to(c10::kDouble));
    return at::matmul(centred, at::sub(weight_.to(c10::kDouble), zero_point_)).to(c10::kLong).to(c10::kInt);
  }

  const at::Tensor weight_, zero_point_;
  const LaidWeight laid_;
  mutable Recent<std::vector<int64_t>, Prepared> recent_{64};
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed_integers(const at::Tensor& weight, int64_t zero_point) {
  return c10::make_intrusive<onednn::PackedIntegers>(weight, zero_point);
}

}  // namespace onnxtorch
