#ifdef __x86_64__

#include <gtest/gtest.h>
#include <stdlib.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/simd/argmax.h"
#include "kernels/simd/attention.h"
#include "kernels/simd/bits_integer_product.h"
#include "kernels/simd/bits_product.h"
#include "kernels/simd/chain.h"
#include "kernels/simd/channel_means.h"
#include "kernels/simd/group_norm.h"
#include "kernels/simd/half_product.h"
#include "kernels/simd/largest.h"
#include "kernels/simd/layer_norm.h"
#include "kernels/simd/panel_product.h"
#include "kernels/simd/pooling.h"
#include "kernels/simd/quantized/blocks.h"
#include "kernels/simd/quantized/quantize.h"
#include "kernels/simd/quantized/sums.h"
#include "kernels/simd/recurrent.h"
#include "kernels/simd/rotary.h"
#include "kernels/simd/rounding.h"
#include "kernels/simd/row_product.h"
#include "kernels/simd/softmax.h"

namespace onnxtorch {
namespace {

template <typename... Kernels>
struct All {
  static bool are_for_avx2() { return ((&for_this_cpu<Kernels>() == &Kernels::AVX2) && ...); }
  static bool are_for_any_cpu() { return ((&for_this_cpu<Kernels>() == &Kernels::DEFAULT) && ...); }
};
using AllKernels = All<ArgmaxKernels, AttentionKernels, BitsIntegerKernels, BitsProductKernels, BlockKernels,
                       chain::Kernels, ChannelMeansKernels, GroupNormKernels, HalfProductKernels, IntegerKernels,
                       LargestKernels, LayerNormKernels, PoolKernels, QuantizeKernels, RecurrentKernels, RotaryKernels,
                       RoundingKernels, RowProductKernels, SoftmaxKernels, SumKernels>;

// ATen reads the variable once, so each choice is made in a process of its own.
TEST(SimdDeathTest, TheCapabilityPicksTheKernels) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const char* const given = getenv("ATEN_CPU_CAPABILITY");
  setenv("ATEN_CPU_CAPABILITY", "avx2", /*overwrite=*/1);
  EXPECT_EXIT(exit(AllKernels::are_for_avx2() ? 0 : 1), testing::ExitedWithCode(0), "");
  setenv("ATEN_CPU_CAPABILITY", "default", /*overwrite=*/1);
  EXPECT_EXIT(exit(AllKernels::are_for_any_cpu() ? 0 : 1), testing::ExitedWithCode(0), "");
  given ? setenv("ATEN_CPU_CAPABILITY", given, /*overwrite=*/1) : unsetenv("ATEN_CPU_CAPABILITY");
}

}  // namespace
}  // namespace onnxtorch

#endif
