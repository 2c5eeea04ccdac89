// The operators that onnxruntime writes for its own layouts: com.microsoft.nchwc, with blocks of channels, and
// com.ms.internal.nhwc, with the channels last.
#include <ATen/ops/tensor.h>

#include "ops/contrib/block_size.h"
#include "ops/contrib/contrib.h"
#include "ops/contrib/fused.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

// --- com.microsoft.nchwc: a file of these is for CPUs like that which wrote it ---

constexpr char kBlocks[] = "com.microsoft.nchwc";

ImageLayout blocks(int64_t block) {
  const auto called = [block](const char* script) {
    return [script, block](Translator& t, const Value& x) { return t.call(script, {x, block}); };
  };
  return {called("from_blocks"), called("to_blocks")};
}

TranslateFunction reorder(const char* function) {
  return
      [function](Translator& t, const NodeView& n) { return script(function, {kw("block", block_size(t, n))})(t, n); };
}

TranslateFunction in_blocks(TranslateFunction translate) {
  return [translate = std::move(translate)](Translator& t, const NodeView& n) {
    return in_layout(blocks(block_size(t, n)), translate)(t, n);
  };
}

Values conv_of_blocks(Translator& t, const NodeView& n) {
  const int64_t block = block_size(t, n);
  const Value x = n.tensor(0), w = n.tensor(1);
  const Value sum = n.has(3) ? t.call("from_blocks", {n.tensor(3), block}).as(Float) : Value{};
  const Values inputs{t.call("conv_input_from_blocks", {x, w, n.attr_int("group"), block}).as(Float),
                      t.call("filters_from_blocks", {w, block}).as(Float), n.input(2), sum};
  return {t.call("to_blocks", {fused_conv(t, with_inputs(t, n, inputs))[0], block})};
}

TranslateFunction standard_operator(const std::string& op) {
  return [op](Translator& t, const NodeView& n) { return standard(t, n, op, n.inputs()); };
}

// Translates Upsample. Upsample-9 is "nearest" as this is, whatever the coordinates are; Resize-13 knows the
// coordinates of "linear".
Values upsample(Translator& t, const NodeView& n) {
  const std::vector<int64_t> scales = n.has_attribute("scales") ? n.attr_ints("scales") : std::vector<int64_t>(4, 1);
  if (scales.size() != 4 || scales[0] != 1 || scales[1] != 1 || scales[2] < 1 || scales[3] < 1)
    n.fail("scales are those of a height and a width");
  const Value factors = t.constant(at::tensor(scales, c10::kFloat), Float);
  if (n.attr_string("mode") == "nearest") return standard(t, n, "Upsample", {n.input(0), factors}, 9);
  return standard(t, n, "Resize", {n.input(0), {}, factors}, 13);
}

// --- com.ms.internal.nhwc: of the inputs and outputs, the first ones have the channels last ---

constexpr char kChannelsLast[] = "com.ms.internal.nhwc";

// Translates a node as the standard's operator of that version, which may have an activation here.
Values of_same_name(Translator& t, const NodeView& n) {
  Values outputs = standard(t, n, std::string(n.schema()->name), n.inputs(), n.schema()->since_version);
  outputs[0] = activated(t, n, outputs[0].as(n.output_type(0)));
  return outputs;
}

Values qlinear_conv_transpose(Translator& t, const NodeView& n) {
  const Value x = t.call("dequantized_by_one", {n.tensor(0), n.tensor(1), n.tensor(2)}).as(Float);
  const Value w =
      t.call("dequantized_transposed_filters", {n.tensor(3), n.tensor(4), n.tensor(5), n.attr_int("group")}).as(Float);
  const Value b = n.has(8) ? t.call("dequantized_bias", {n.tensor(8), n.tensor(1), n.tensor(4)}).as(Float) : Value{};
  const Value y = standard(t, n, "ConvTranspose", {x, w, b})[0].as(Float);
  return standard(t, n, "QuantizeLinear", {y, n.input(6), n.input(7)});
}

struct Versions {
  const char* op;
  int first, last;
};

constexpr Versions kOfSameName[] = {
    {"AveragePool", 7, 19},  {"BatchNormalization", 7, 15},
    {"Conv", 1, 11},         {"ConvTranspose", 1, 11},
    {"DepthToSpace", 1, 13}, {"GlobalAveragePool", 1, 1},
    {"GlobalLpPool", 2, 2},  {"GlobalMaxPool", 1, 1},
    {"GridSample", 16, 20},  {"InstanceNormalization", 6, 6},
    {"LRN", 1, 13},          {"LpPool", 11, 18},
    {"MaxPool", 1, 12},      {"MaxUnpool", 9, 11},
    {"QLinearConv", 10, 10}, {"SpaceToDepth", 1, 13},
};

}  // namespace

void register_contrib_layouts_ops(Registry& r) {
  r.op(kBlocks, "AveragePool").since(1, in_blocks(standard_operator("AveragePool")));
  r.op(kBlocks, "Conv").since(1, conv_of_blocks);
  r.op(kBlocks, "GlobalAveragePool").since(1, in_blocks(standard_operator("GlobalAveragePool")));
  r.op(kBlocks, "GlobalMaxPool").since(1, in_blocks(standard_operator("GlobalMaxPool")));
  r.op(kBlocks, "MaxPool").since(1, in_blocks(standard_operator("MaxPool")));
  r.op(kBlocks, "ReorderInput").since(1, reorder("reorder_input"));
  r.op(kBlocks, "ReorderOutput").since(1, reorder("reorder_output"));
  r.op(kBlocks, "Upsample").since(1, in_blocks(upsample));

  for (const auto& [op, first, last] : kOfSameName)
    r.op(kChannelsLast, op).since(first, in_layout(channels_last(), of_same_name)).reviewed_to(last);
  r.op(kChannelsLast, "QLinearAveragePool").since(1, in_layout(channels_last(), qlinear_average_pool));
  r.op(kChannelsLast, "QLinearConvTranspose").since(1, in_layout(channels_last(), qlinear_conv_transpose));
  // Resize has scales and sizes of the dimensions as they come.
  r.op(kChannelsLast, "Resize").since(11, of_same_name).reviewed_to(19);
}

}  // namespace onnxtorch
