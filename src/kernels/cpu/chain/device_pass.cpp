#include "kernels/cpu/chain/device_pass.h"

#include <algorithm>
#include <limits>

namespace onnxtorch {
namespace {

using chain::Source;

bool fits(const Source& source) { return source.sizes.size() <= ElementWise::kMostDims; }

bool fits(const ChainPlan::Pass& pass) {
  const chain::Loop& loop = pass.loop;
  return loop.reductions.empty() && pass.rests.empty() && pass.items <= std::numeric_limits<int32_t>::max() &&
         std::ranges::all_of(loop.sources, [](const Source& source) { return fits(source); }) &&
         loop.sources.size() <= ElementWise::kMostSources && loop.constants.size() <= ElementWise::kMostConstants &&
         loop.result_types.size() <= ElementWise::kMostResults && loop.steps.size() <= ElementWise::kMostSteps &&
         loop.registers + loop.result_types.size() <= ElementWise::kMostLocals;
}

ElementWise::Source source_of(const Source& source) {
  ElementWise::Source result{.type = source.type, .rank = 0, .sizes = {}, .strides = {}};
  if (source.kind == Source::Kind::Splat) return result;
  result.rank = static_cast<uint32_t>(source.sizes.size());
  std::ranges::copy(source.sizes, result.sizes);
  std::ranges::copy(source.strides, result.strides);
  return result;
}

}  // namespace

c10::intrusive_ptr<ElementWisePass> device_pass(const ChainPlan::Pass& pass) {
  if (!fits(pass)) return {};
  const chain::Loop& loop = pass.loop;
  auto result = c10::make_intrusive<ElementWisePass>();
  ElementWise& computed = result->computed;
  computed.count = static_cast<uint32_t>(pass.items);
  computed.source_count = static_cast<uint32_t>(loop.sources.size());
  computed.constant_count = static_cast<uint32_t>(loop.constants.size());
  computed.result_count = static_cast<uint32_t>(loop.result_types.size());
  computed.local_count = loop.registers + computed.result_count;
  computed.step_count = static_cast<uint32_t>(loop.steps.size());
  std::ranges::transform(loop.sources, computed.sources, source_of);
  std::ranges::copy(loop.constants, computed.constants);
  std::ranges::copy(loop.result_types, computed.result_types);
  std::ranges::copy(loop.steps, computed.steps);
  result->sizes = pass.layout.sizes;
  result->strides = pass.layout.strides;
  return result;
}

}  // namespace onnxtorch
