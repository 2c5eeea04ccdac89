#include "numpy_values.h"

#include <ATen/ATen.h>

#include <cstring>

#include "import/storage.h"
#include "torch_values.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;
using c10::IValue;
using Kind = ValueType::Kind;

std::string numpy_name(const py::array& array) { return py::str(array.dtype().attr("name")); }

// numpy's own dtype, or the one that ml_dtypes registers, for an ONNX type.
py::dtype numpy_dtype(ElementType type) {
  const std::string name(info(type).numpy);
  const py::module_ ml_dtypes = py::module_::import("ml_dtypes");
  return py::dtype::from_args(py::hasattr(ml_dtypes, name.c_str()) ? py::object(ml_dtypes.attr(name.c_str()))
                                                                   : py::object(py::str(name)));
}

bool is_text(const py::array& array) {
  const char kind = array.dtype().kind();
  return kind == 'O' || kind == 'U' || kind == 'S' || kind == 'T';
}

std::string text_of(py::handle item) {
  if (py::isinstance<py::bytes>(item)) return py::cast<std::string>(item);
  return py::cast<std::string>(py::str(item));
}

at::Tensor string_tensor(const py::array& array, StringPool& strings) {
  at::Tensor ids = at::empty(std::vector<int64_t>(array.shape(), array.shape() + array.ndim()), c10::kLong);
  int64_t* out = ids.data_ptr<int64_t>();
  for (py::handle item : array.attr("ravel")().attr("tolist")()) *out++ = strings.intern(text_of(item));
  return ids;
}

at::Tensor number_tensor(py::array array, ElementType type) {
  const auto byteorder = py::cast<std::string>(array.dtype().attr("byteorder"));
  if (byteorder == ">") array = array.attr("astype")(array.dtype().attr("newbyteorder")("="));
  bool negative = false;
  for (py::ssize_t i = 0; i < array.ndim(); ++i)
    negative |= array.strides(i) < 0 || array.strides(i) % array.itemsize() != 0;
  if (negative) array = py::array(array.attr("copy")());
  std::vector<int64_t> sizes, strides;
  for (py::ssize_t i = 0; i < array.ndim(); ++i) {
    sizes.push_back(array.shape(i));
    strides.push_back(array.strides(i) / array.itemsize());
  }
  auto* owner = new py::object(array);
  const auto release = [owner](void*) {
    const py::gil_scoped_acquire gil;
    delete owner;
  };
  const at::Tensor native = at::from_blob(const_cast<void*>(array.data()), sizes, strides, release, native_dtype(type));
  return to_storage(type, native);
}

Fed tensor_from_python(py::handle object, const ValueType& expected, const std::string& name, StringPool& strings) {
  if (auto fed = fed_from_torch(object, expected.element, name)) return *std::move(fed);
  py::array array;
  if (py::isinstance<py::array>(object)) {
    array = py::reinterpret_borrow<py::array>(object);
  } else {
    const bool typed =
        py::hasattr(object, "dtype");  // a numpy scalar keeps its type, Python's own take the expected one
    const bool text = expected.element == ElementType::String;
    array = typed || !expected.known() || text
                ? py::array(py::module_::import("numpy").attr(text && !typed ? "array" : "asarray")(object))
                : py::array(py::module_::import("numpy").attr("asarray")(object, numpy_dtype(expected.element)));
  }
  if (is_text(array)) return {ValueType::tensor(ElementType::String), string_tensor(array, strings)};
  ElementType type = element_type_of_numpy(numpy_name(array));
  // numpy has no bfloat16 of its own: where the model asks for it, uint16 holds its bits, as in onnx's own files
  // till 1.18.
  if (type == ElementType::Uint16 && expected.element == ElementType::Bfloat16) type = ElementType::Bfloat16;
  if (type == ElementType::Undefined) {
    throw InputError("the input \"" + name + "\" has the element type " + numpy_name(array) +
                     ", which ONNX does not have");
  }
  return {ValueType::tensor(type), number_tensor(array, type)};
}

Fed from_python(py::handle object, const ValueType& expected, const std::string& name, StringPool& strings) {
  if (object.is_none()) return {expected, IValue()};
  switch (expected.kind) {
    case Kind::Optional: {
      Fed inner = from_python(object, *expected.inner, name, strings);
      return {ValueType::optional(inner.type), std::move(inner.value)};
    }
    case Kind::Sequence: {
      if (!py::isinstance<py::list>(object) && !py::isinstance<py::tuple>(object)) {
        throw InputError("the input \"" + name + "\" must be a list (" + expected.str() + "), not " +
                         py::cast<std::string>(py::str(py::type::of(object))));
      }
      ValueType inner = *expected.inner;
      c10::impl::GenericList items(torchscript_type(inner));
      for (py::handle item : object) {
        Fed fed = from_python(item, *expected.inner, name, strings);
        inner = fed.type;
        items.push_back(std::move(fed.value));
      }
      return {ValueType::sequence(inner), items};
    }
    case Kind::Map: {
      const auto items = py::cast<py::dict>(object);
      const py::module_ numpy = py::module_::import("numpy");
      const auto column = [&](const char* part, ElementType element) {
        const py::list list(items.attr(part)());
        return numpy.attr("array")(list, numpy_dtype(element));
      };
      const Fed keys = tensor_from_python(column("keys", expected.key), ValueType::tensor(expected.key), name, strings);
      const Fed values =
          tensor_from_python(column("values", expected.element), ValueType::tensor(expected.element), name, strings);
      return {expected, c10::ivalue::Tuple::create({keys.value, values.value})};
    }
    case Kind::Tensor:
      break;
  }
  return tensor_from_python(object, expected, name, strings);
}

py::object tensor_to_python(const at::Tensor& stored, ElementType type, const StringPool& strings, Form form) {
  if (type == ElementType::Undefined) type = element_type_of(stored.scalar_type());  // as of an ATen node's result
  if (form == Form::Torch && type != ElementType::String) return tensor_to_torch(stored, type);
  const at::Tensor cpu = stored.cpu();
  if (type == ElementType::String) {
    const at::Tensor ids = cpu.contiguous();
    py::array array(py::dtype("O"), std::vector<py::ssize_t>(ids.sizes().begin(), ids.sizes().end()));
    auto** out = static_cast<PyObject**>(array.mutable_data());
    for (int64_t i = 0; i < ids.numel(); ++i) {
      Py_XDECREF(out[i]);
      out[i] = py::str(strings.at(ids.data_ptr<int64_t>()[i])).release().ptr();
    }
    return array;
  }
  const at::Tensor native = from_storage(type, cpu).contiguous();
  auto* owner = new at::Tensor(native);
  const py::capsule keep(owner, [](void* tensor) { delete static_cast<at::Tensor*>(tensor); });
  return py::array(numpy_dtype(type), std::vector<py::ssize_t>(native.sizes().begin(), native.sizes().end()),
                   native.const_data_ptr(), keep);
}

py::object map_to_python(const IValue& value, const ValueType& type, const StringPool& strings) {
  const auto& parts = value.toTupleRef().elements();
  const py::object keys = tensor_to_python(parts[0].toTensor(), type.key, strings, Form::Numpy).attr("tolist")();
  const py::object values = tensor_to_python(parts[1].toTensor(), type.element, strings, Form::Numpy).attr("tolist")();
  return py::dict(py::module_::import("builtins").attr("zip")(keys, values));
}

}  // namespace

Fed fed_from_python(py::handle object, const InputSpec& expected, StringPool& strings) {
  return from_python(object, expected.type, expected.name, strings);
}

py::object value_to_python(const IValue& value, const ValueType& type, const StringPool& strings, Form form) {
  if (value.isNone()) return py::none();
  switch (type.kind) {
    case Kind::Optional:
      return value_to_python(value, *type.inner, strings, form);
    case Kind::Sequence: {
      py::list list;
      for (const IValue& item : value.toListRef()) list.append(value_to_python(item, *type.inner, strings, form));
      return list;
    }
    case Kind::Map:
      return map_to_python(value, type, strings);
    case Kind::Tensor:
      break;
  }
  return tensor_to_python(value.toTensor(), type.element, strings, form);
}

}  // namespace onnxtorch
