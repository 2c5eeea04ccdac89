// DFT, STFT, the windows and MelWeightMatrix.
#include <algorithm>

#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Gives what was computed in double, in the output's type.
Values to_output_datatype(Translator& t, const NodeView& n, const Value& x) {
  const ElementType type = n.attr_element("output_datatype");
  return {t.call("aten::to", {x, type}).as(type)};
}

// Makes the translator of a window. ATen's window functions take a size, whether it is periodic, and their
// coefficients.
TranslateFunction window(std::string function, std::vector<Arg> coefficients = {}) {
  return [function = std::move(function), coefficients = std::move(coefficients)](Translator& t, const NodeView& n) {
    std::vector<Arg> args{n.integer(0), n.attr_int("periodic") != 0};
    std::ranges::copy(coefficients, std::back_inserter(args));
    args.push_back(kw("dtype", c10::kDouble));
    args.push_back(kw("device", t.device()));
    return to_output_datatype(t, n, t.call(function, args));
  };
}

Values mel_weight_matrix(Translator& t, const NodeView& n) {
  return to_output_datatype(t, n, script("mel_weight_matrix")(t, n)[0]);
}

}  // namespace

void register_signal_ops(Registry& r) {
  r.op("DFT").since(17, script("dft")).reviewed_to(20);  // axis was an attribute before 20
  r.op("STFT").since(17, script("stft")).reviewed_to(17);
  r.op("HannWindow").since(17, window("aten::hann_window")).reviewed_to(17);
  r.op("HammingWindow").since(17, window("aten::hamming_window", {25.0 / 46.0, 21.0 / 46.0})).reviewed_to(17);
  r.op("BlackmanWindow").since(17, window("aten::blackman_window")).reviewed_to(17);
  r.op("MelWeightMatrix").since(17, mel_weight_matrix).reviewed_to(17);
}

}  // namespace onnxtorch
