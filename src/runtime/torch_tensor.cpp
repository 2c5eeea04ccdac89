#include "runtime/torch_tensor.h"

#include <ATen/ATen.h>

#include "import/storage.h"

namespace onnxtorch {
namespace {

ElementType type_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kUInt16:
      return ElementType::Uint16;
    case c10::kUInt32:
      return ElementType::Uint32;
    case c10::kUInt64:
      return ElementType::Uint64;
    default:
      return element_type_of(dtype);
  }
}

// Tells whether torch has a dtype of its own for the small float, as it has for those of 8 bits. Narrower elements come
// and go one a byte.
bool is_own_dtype(ElementType type) { return is_small_float(type) && info(type).bits == 8; }

// Gives a tensor of today's mode on the same memory: one made in inference mode could not be used where gradients are.
at::Tensor outside_inference(const at::Tensor& t) {
  if (!t.is_inference()) return t;
  return at::empty({0}, t.options()).set_(t.storage(), t.storage_offset(), t.sizes(), t.strides());
}

}  // namespace

Fed fed_from_tensor(const at::Tensor& tensor, ElementType expected, const std::string& input) {
  if (!tensor.defined()) throw InputError("the input \"" + input + "\" is an undefined tensor");
  ElementType type = type_of(tensor.scalar_type());
  if (tensor.layout() != at::kStrided) {
    throw InputError("the input \"" + input +
                     "\" is a torch tensor that is sparse, or otherwise not dense; give its to_dense()");
  }
  if (type == ElementType::Undefined) {
    throw InputError("the input \"" + input +
                     "\" is a torch tensor that ONNX has no type for: " + c10::toString(tensor.scalar_type()));
  }
  if (info(expected).bits < 8 && native_dtype(expected) == tensor.scalar_type()) type = expected;
  return {ValueType::tensor(type), to_storage(type, tensor.detach().resolve_conj().resolve_neg())};
}

at::Tensor torch_tensor(const at::Tensor& stored, ElementType type) {
  return outside_inference(is_own_dtype(type) ? stored : from_storage(type, stored));
}

}  // namespace onnxtorch
