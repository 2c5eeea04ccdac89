#include <oneapi/dnnl/dnnl.h>
#include <torch/library.h>

#include "base/list_of_tensors.h"
#include "base/registered.h"
#include "kernels/cpu/onednn/packed.h"
#include "kernels/cpu/onednn/product.h"
#include "kernels/cpu/quantized/quantize.h"

namespace onnxtorch {
namespace {

// Boxed, as TorchScript copies a list for a function that takes one, and each tensor has a reference more then.
void run_packed(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const std::vector<at::Tensor> operands = taken(torch::jit::pop(*stack));
  const auto operation = torch::jit::pop(*stack).toCustomClass<Packed>();
  const at::Tensor x = torch::jit::pop(*stack).toTensor();
  torch::jit::push(*stack, static_cast<const PackedProduct&>(*operation).run(x, operands));
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

at::Tensor run_integers(const at::Tensor& x, const c10::intrusive_ptr<Packed>& operation,
                        const at::Tensor& zero_point) {
  return static_cast<const PackedIntegerProduct&>(*operation).run(x, zero_point);
}

at::Tensor run_scaled_integers(const at::Tensor& x, const c10::intrusive_ptr<Packed>& operation,
                               const at::Tensor& zero_point, const at::Tensor& scale, at::TensorList addends,
                               bool relu) {
  return static_cast<const PackedIntegerProduct&>(*operation).run_scaled(x, zero_point, scale, addends, relu);
}

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* const version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

void register_onednn() {
  static const torch::Library library = registered([](torch::Library& m) {
    const torch::class_<Packed> packed("onnx_torch", "Packed");
    m.def("packed(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation, Tensor[] operands) -> Tensor",
          torch::CppFunction::makeFromBoxedFunction<run_packed>());
    m.def(
        "recurrent(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation, Tensor[] states, Tensor? within) -> "
        "Tensor[]",
        run_recurrent);
    m.def("matmul(Tensor a, Tensor b) -> Tensor", onednn::product);
    m.def("integer_product(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation, Tensor zero_point) -> Tensor",
          run_integers);
    m.def(
        "scaled_integer_product(Tensor x, __torch__.torch.classes.onnx_torch.Packed operation, Tensor zero_point, "
        "Tensor scale, Tensor[] addends, bool relu) -> Tensor",
        run_scaled_integers);
    m.def("dynamic_quantize(Tensor x) -> (Tensor, Tensor, Tensor)", onednn::dynamic_quantize);
    m.def("dequantize(Tensor x, float scale, int zero_point) -> Tensor", onednn::dequantize);
    m.def("dequantize_along(Tensor x, Tensor scale, int axis) -> Tensor", onednn::dequantize_along);
    m.def("quantize(Tensor x, float scale, int zero_point, int low, int high, ScalarType dtype) -> Tensor",
          onednn::quantize);
    m.def("look_up(Tensor x, Tensor table) -> Tensor", onednn::look_up);
    m.def(
        "quantized_add(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, "
        "float start, float scale, int zero_point, int low, int high, ScalarType dtype) -> Tensor",
        onednn::quantized_add);
    m.def(
        "quantized_mul(Tensor a, float a_scale, int a_zero_point, Tensor b, float b_scale, int b_zero_point, "
        "float unit, float start, float scale, int zero_point, int low, int high, ScalarType dtype) -> Tensor",
        onednn::quantized_mul);
  });
  register_planner("onnx_torch::packed", plan_packed);
  register_planner("onnx_torch::matmul", onednn::plan_product);
}

}  // namespace onnxtorch
