#include <ATen/ATen.h>
#include <torch/library.h>

#include <iterator>

#include "base/registered.h"
#include "kernels/composite/operators.h"

namespace onnxtorch {
namespace {

template <typename Number>
at::Tensor filled(Number number, c10::ScalarType dtype, c10::Device device) {
  return at::full({}, number, at::dtype(dtype).device(device));
}

// Fills a tensor with the numbers. Equal ones that follow one another are filled by one kernel.
at::Tensor filled_numbers(at::IntArrayRef numbers, c10::ScalarType dtype, c10::Device device) {
  at::Tensor result = at::empty({std::ssize(numbers)}, at::dtype(dtype).device(device));
  for (size_t first = 0, end = 0; first < numbers.size(); first = end) {
    while (end < numbers.size() && numbers[end] == numbers[first]) ++end;
    result.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(end - first)).fill_(numbers[first]);
  }
  return result;
}

}  // namespace

void register_filled_numbers() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("filled_flag(bool flag, ScalarType dtype, Device device) -> Tensor", filled<bool>);
    m.def("filled_number(Scalar number, ScalarType dtype, Device device) -> Tensor", filled<const at::Scalar&>);
    m.def("filled_numbers(int[] numbers, ScalarType dtype, Device device) -> Tensor", filled_numbers);
  });
}

}  // namespace onnxtorch
