#ifdef __x86_64__

#include <gtest/gtest.h>
#include <stdlib.h>

#include "lower/cpu_features.h"
#include "lower/simd/attention.h"
#include "lower/simd/chain.h"
#include "lower/simd/group_norm.h"
#include "lower/simd/half_product.h"
#include "lower/simd/largest.h"
#include "lower/simd/panel_product.h"
#include "lower/simd/pooling.h"
#include "lower/simd/quantized/quantize.h"
#include "lower/simd/quantized/sums.h"
#include "lower/simd/recurrent.h"
#include "lower/simd/rotary.h"
#include "lower/simd/rounding.h"
#include "lower/simd/rows.h"

namespace onnxtorch {
namespace {

template <typename... Kernels>
struct All {
  static bool are_for_avx2() { return ((&for_this_cpu<Kernels>() == &Kernels::AVX2) && ...); }
  static bool are_for_any_cpu() { return ((&for_this_cpu<Kernels>() == &Kernels::DEFAULT) && ...); }
};
using AllKernels =
    All<AttentionKernels, chain::Kernels, GroupNormKernels, HalfProductKernels, IntegerKernels, LargestKernels,
        PoolKernels, QuantizeKernels, RecurrentKernels, RotaryKernels, RoundingKernels, RowKernels, SumKernels>;

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
