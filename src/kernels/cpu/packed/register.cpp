#include <torch/library.h>

#include <algorithm>

#include "base/list_of_tensors.h"
#include "base/registered.h"
#include "kernels/cpu/packed/packed.h"

namespace onnxtorch {
namespace {

// Runs an operator. The function is boxed, as TorchScript copies the list for one that takes a list, and then each
// tensor has one more reference.
void run_packed(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const std::vector<at::Tensor> operands = take_tensors(torch::jit::pop(*stack));
  const auto operation = torch::jit::pop(*stack).toCustomClass<Packed>();
  const at::Tensor x = torch::jit::pop(*stack).toTensor();
  torch::jit::push(*stack, static_cast<const PackedProduct&>(*operation).run(x, operands));
}

at::Tensor run_packed_nbits(const at::Tensor& x, const c10::intrusive_ptr<Packed>& operation) {
  return static_cast<const PackedProduct&>(*operation).run(x, {});
}

std::unique_ptr<PlannedCall> plan_packed_nbits(const PlannedOperands& of) {
  const auto operation = of.arguments[1].toCustomClass<Packed>();
  return static_cast<const PackedProduct&>(*operation).planned(of.tensor(0), {}, of.results[0]);
}

std::unique_ptr<PlannedCall> plan_packed(const PlannedOperands& of) {
  const auto operation = of.arguments[1].toCustomClass<Packed>();
  const std::vector<at::Tensor> operands = of.arguments[2].toTensorVector();
  return static_cast<const PackedProduct&>(*operation).planned(of.tensor(0), operands, of.results[0]);
}

std::vector<at::Tensor> run_recurrent(const at::Tensor& x, const c10::intrusive_ptr<Packed>& operation,
                                      at::TensorList states, const std::optional<at::Tensor>& within) {
  return static_cast<const PackedRecurrent&>(*operation).run(x, states, within);
}

std::unique_ptr<PlannedCall> plan_recurrent(const PlannedOperands& of) {
  const auto operation = of.arguments[1].toCustomClass<Packed>();
  const std::vector<at::Tensor> states = of.arguments[2].toTensorVector();
  if (!std::ranges::all_of(of.results, [](const at::Tensor& y) { return y.is_contiguous(); })) return {};
  return static_cast<const PackedRecurrent&>(*operation)
      .planned(of.tensor(0), states, of.arguments[3].toOptional<at::Tensor>());
}

at::Tensor run_integers(const at::Tensor& x, const c10::intrusive_ptr<Packed>& operation,
                        const at::Tensor& zero_point) {
  return static_cast<const PackedIntegerProduct&>(*operation).run(x, zero_point);
}

at::Tensor run_scaled_integers(const at::Tensor& x, const c10::intrusive_ptr<Packed>& operation,
                               const at::Tensor& zero_point, const at::Tensor& scale, at::TensorList addends,
                               bool relu) {
  return static_cast<const PackedIntegerProduct&>(*operation).run_scaled(x, zero_point, scale, addends, relu);
}

std::unique_ptr<PlannedCall> plan_scaled_integers(const PlannedOperands& of) {
  const auto operation = of.arguments[1].toCustomClass<Packed>();
  const std::vector<at::Tensor> addends = of.arguments[4].toTensorVector();
  return static_cast<const PackedIntegerProduct&>(*operation)
      .planned_scaled(of.tensor(0), of.tensor(2), of.tensor(3), addends, of.arguments[5].toBool(), of.results[0]);
}

}  // namespace

void register_packed() {
  static const torch::Library library = registered([](torch::Library& m) {
    const torch::class_<Packed> packed("onnx_torch", "Packed");
    m.def("packed(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation, Tensor[] operands) -> Tensor",
          torch::CppFunction::makeFromBoxedFunction<run_packed>());
    // These run a LinearOfBits, without and with rounding of x.
    m.def("packed_nbits(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation) -> Tensor", run_packed_nbits);
    m.def("packed_nbits_int8(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation) -> Tensor",
          run_packed_nbits);
    m.def(
        "recurrent(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation, Tensor[] states, Tensor? within) -> "
        "Tensor[]",
        run_recurrent);
    m.def("integer_product(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation, Tensor zero_point) -> Tensor",
          run_integers);
    m.def(
        "scaled_integer_product(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation, Tensor zero_point, "
        "Tensor scale, Tensor[] addends, bool relu) -> Tensor",
        run_scaled_integers);
  });
  register_planner("onnx_torch::packed", plan_packed);
  register_planner("onnx_torch::recurrent", plan_recurrent);
  register_planner("onnx_torch::packed_nbits", plan_packed_nbits);
  register_planner("onnx_torch::packed_nbits_int8", plan_packed_nbits);
  register_planner("onnx_torch::scaled_integer_product", plan_scaled_integers);
}

}  // namespace onnxtorch
