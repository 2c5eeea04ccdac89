#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/call_script.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/simd/quantized/blocks.h"

namespace onnxtorch {
namespace {

using at::Tensor;

struct Parameters {
  int64_t gather_axis, quantize_axis, block_size, bits, default_zero_point;
};

// A table of slices, of which an index picks one. Each has `rows` rows of numbers, and each row has blocks of its own.
struct Table {
  int64_t slices, rows, count, block_size, bits;  // `count` is that of the numbers of a row
  int64_t bytes, blocks, bytes_of_zero_points;    // of a row
  float zero_point;
  bool is_signed;
};

struct Operands {
  Tensor data, indices, scales, zero_points;  // the last may be undefined
};

int64_t parts(int64_t count, int64_t size) { return (count - 1) / size + 1; }

bool is_whole(const Tensor& t, at::ScalarType type) { return is_plain(t, type) && t.is_contiguous(); }

// Gives the table; none where the script is to compute, or to refuse the operands.
std::optional<Table> table_of(const Operands& of, const Parameters& by) {
  const auto type = of.data.scalar_type();
  const int64_t dims = of.data.dim();
  if ((type != c10::kByte && type != c10::kChar) || dims < 2 || of.data.numel() == 0 || !is_whole(of.data, type)) {
    return {};
  }
  if (!is_whole(of.indices, c10::kLong) && !is_whole(of.indices, c10::kInt)) return {};
  if (by.gather_axis != 0 && by.gather_axis != -dims) return {};
  if (by.quantize_axis != -1 && by.quantize_axis != dims - 1) return {};
  const int64_t bytes = of.data.size(-1), count = bytes * 8 / by.bits,
                block_size = by.block_size == 0 ? count : by.block_size, blocks = parts(count, block_size),
                bytes_of_zero_points = parts(blocks * by.bits, 8);
  std::vector<int64_t> sizes = of.data.sizes().vec();
  sizes.back() = blocks;
  if (!is_whole(of.scales, c10::kFloat) || of.scales.sizes() != sizes) return {};
  sizes.back() = bytes_of_zero_points;
  if (of.zero_points.defined() && (!is_whole(of.zero_points, type) || of.zero_points.sizes() != sizes)) return {};
  return Table{.slices = of.data.size(0),
               .rows = c10::multiply_integers(of.data.sizes().slice(1, dims - 2)),
               .count = count,
               .block_size = block_size,
               .bits = by.bits,
               .bytes = bytes,
               .blocks = blocks,
               .bytes_of_zero_points = bytes_of_zero_points,
               .zero_point = static_cast<float>(by.default_zero_point),
               .is_signed = type == c10::kChar};
}

template <typename T>
void dequantize_row(const Table& of, int64_t row, const void* data, const float* scales, const void* zero_points,
                    float* y) {
  const BlocksOfBits<T> blocks{
      .numbers = static_cast<const T*>(data) + row * of.bytes,
      .scales = scales + row * of.blocks,
      .zero_points = zero_points ? static_cast<const T*>(zero_points) + row * of.bytes_of_zero_points : nullptr,
      .zero_point = of.zero_point,
      .bits = of.bits,
      .count = of.count,
      .block_size = of.block_size};
  const auto& kernels = for_this_cpu<BlockKernels>();
  if constexpr (std::is_signed_v<T>) {
    kernels.dequantize_int8(blocks, y);
  } else {
    kernels.dequantize_uint8(blocks, y);
  }
}

// Picks and dequantizes slices. An index that is out of range gives zeros.
template <typename Index>
void pick(const Table& of, int64_t picked, const void* data, const Index* indices, const float* scales,
          const void* zero_points, float* y) {
  parallel_for(picked * of.rows, of.count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t given = indices[i / of.rows], slice = given < 0 ? given + of.slices : given;
      const int64_t row = slice * of.rows + i % of.rows;
      if (slice < 0 || slice >= of.slices) {
        std::fill_n(y + i * of.count, of.count, 0.0F);
      } else if (of.is_signed) {
        dequantize_row<int8_t>(of, row, data, scales, zero_points, y + i * of.count);
      } else {
        dequantize_row<uint8_t>(of, row, data, scales, zero_points, y + i * of.count);
      }
    }
  });
}

void pick(const Table& of, int64_t picked, bool is_long, const void* data, const void* indices, const float* scales,
          const void* zero_points, float* y) {
  if (is_long) {
    pick(of, picked, data, static_cast<const int64_t*>(indices), scales, zero_points, y);
  } else {
    pick(of, picked, data, static_cast<const int32_t*>(indices), scales, zero_points, y);
  }
}

Tensor by_script(const Operands& of, const Parameters& by) {
  std::vector<c10::IValue> stack{of.data, of.indices, of.scales,
                                 of.zero_points.defined() ? c10::IValue(of.zero_points) : c10::IValue()};
  for (const int64_t number : {by.gather_axis, by.quantize_axis, by.block_size, by.bits, by.default_zero_point}) {
    stack.emplace_back(number);
  }
  call_script("onnx_torch::gather_block_quantized", stack);
  return stack[0].toTensor();
}

Tensor gather_blocks(const Tensor& data, const Tensor& indices, const Tensor& scales,
                     const std::optional<Tensor>& zero_points, int64_t gather_axis, int64_t quantize_axis,
                     int64_t block_size, int64_t bits, int64_t default_zero_point) {
  const Operands of{data, indices, scales, zero_points.value_or(Tensor())};
  const Parameters by{gather_axis, quantize_axis, block_size, bits, default_zero_point};
  const auto table = table_of(of, by);
  if (!table) return by_script(of, by);
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.insert(sizes.end(), data.sizes().begin() + 1, data.sizes().end() - 1);
  sizes.push_back(table->count);
  const Tensor y = work_tensor(sizes, c10::kFloat);
  pick(*table, indices.numel(), indices.scalar_type() == c10::kLong, data.const_data_ptr(), indices.const_data_ptr(),
       scales.const_data_ptr<float>(), of.zero_points.defined() ? of.zero_points.const_data_ptr() : nullptr,
       y.mutable_data_ptr<float>());
  return y;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const auto number = [&](size_t i) { return of.arguments[i].toInt(); };
  const Operands operands{of.tensor(0), of.tensor(1), of.tensor(2), of.tensor(3)};
  const auto table = table_of(operands, {number(4), number(5), number(6), number(7), number(8)});
  if (!table || !of.results[0].is_contiguous()) return {};
  return planned([table = *table, picked = operands.indices.numel(),
                  is_long = operands.indices.scalar_type() == c10::kLong,
                  has_zero_points = operands.zero_points.defined()](std::span<const TensorPlace> places) {
    pick(table, picked, is_long, places[0].data, places[1].data, places[2].as<float>(),
         has_zero_points ? places[3].data : nullptr, places.back().as<float>());
  });
}

}  // namespace

void register_gather_blocks() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def(
        "gather_blocks(Tensor data, Tensor indices, Tensor scales, Tensor? zero_points, int gather_axis, "
        "int quantize_axis, int block_size, int bits, int default_zero_point) -> Tensor",
        gather_blocks);
  });
  register_planner("onnx_torch::gather_blocks", plan);
}

}  // namespace onnxtorch
