// The numbers of numpy's RandomState (its legacy generator), bit for bit, in double precision.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <random>
#include <utility>

namespace onnxtorch {
namespace {

class RandomState {
 public:
  explicit RandomState(int64_t seed) : bits_(static_cast<std::mt19937::result_type>(seed)) {}

  // Gives 53 bits of two draws, in [0, 1).
  double uniform() {
    const auto high = static_cast<double>(bits_() >> 5), low = static_cast<double>(bits_() >> 6);
    return (high * 0x1p26 + low) / 0x1p53;
  }

  // Draws by the polar method, which gives two numbers at a time; the second one waits for its turn.
  double normal() {
    if (next_) return *std::exchange(next_, std::nullopt);
    double x, y, square;
    do {
      x = 2.0 * uniform() - 1.0;
      y = 2.0 * uniform() - 1.0;
      square = x * x + y * y;
    } while (square >= 1.0 || square == 0.0);
    const double factor = std::sqrt(-2.0 * std::log(square) / square);
    next_ = factor * x;
    return factor * y;
  }

 private:
  std::mt19937 bits_;
  std::optional<double> next_;
};

at::Tensor numbers(at::IntArrayRef size, int64_t seed, double (RandomState::*draw)()) {
  at::Tensor result = at::empty(size, at::kDouble);
  RandomState state(seed);
  double* const first = result.mutable_data_ptr<double>();
  for (int64_t i = 0; i < result.numel(); ++i) first[i] = (state.*draw)();
  return result;
}

at::Tensor numpy_random_uniform(at::IntArrayRef size, int64_t seed) {
  return numbers(size, seed, &RandomState::uniform);
}
at::Tensor numpy_random_normal(at::IntArrayRef size, int64_t seed) { return numbers(size, seed, &RandomState::normal); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  m.def("numpy_random_uniform(int[] size, int seed) -> Tensor", numpy_random_uniform);
  m.def("numpy_random_normal(int[] size, int seed) -> Tensor", numpy_random_normal);
}

}  // namespace onnxtorch
