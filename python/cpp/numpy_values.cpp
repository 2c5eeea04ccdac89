#include "numpy_values.h"

#include <ATen/ATen.h>
#include <ATen/core/DimVector.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>

#include "base/view_of.h"
#include "import/storage.h"
#include "shared_object.h"
#include "text.h"
#include "torch_values.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;
using c10::IValue;
using ByteArray = py::array_t<uint8_t, py::array::c_style>;
using Kind = ValueType::Kind;

std::string numpy_name(const py::array& array) { return py::str(array.dtype().attr("name")); }

constexpr size_t kElementTypes = static_cast<size_t>(ElementType::Float6e3m2) + 1;  // the last

// Gives numpy's own dtype, or the one that ml_dtypes registers, for an ONNX type. Each is looked up once, by whichever
// threads come first, and lives as long as the process.
py::dtype numpy_dtype(ElementType type) {
  static std::array<std::atomic<PyObject*>, kElementTypes> known{};
  std::atomic<PyObject*>& place = known.at(static_cast<size_t>(type));
  if (PyObject* const found = place) return py::reinterpret_borrow<py::dtype>(found);
  const std::string name(info(type).numpy);
  const py::module_ ml_dtypes = py::module_::import("ml_dtypes");
  const py::dtype dtype = py::dtype::from_args(
      py::hasattr(ml_dtypes, name.c_str()) ? py::object(ml_dtypes.attr(name.c_str())) : py::object(py::str(name)));
  PyObject* none = nullptr;
  if (place.compare_exchange_strong(none, dtype.ptr())) dtype.inc_ref();
  return dtype;
}

// Gives the element type of an array. Finding a dtype's name runs Python code, so it is done once for each of numpy's
// type numbers: its own are small, and those of types that others register begin at 256.
ElementType type_of_elements(const py::array& array) {
  static std::array<std::atomic<ElementType>, 512> known{};
  const auto number = static_cast<size_t>(array.dtype().num());
  if (number >= known.size()) return element_type_of_numpy(numpy_name(array));
  ElementType type = known[number];
  if (type == ElementType::Undefined) known[number] = type = element_type_of_numpy(numpy_name(array));
  return type;
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

// Gives the array, or a copy where torch has no tensor of its byte order or strides.
py::array tensor_like(py::array array) {
  if (array.dtype().byteorder() == '>') array = array.attr("astype")(array.dtype().attr("newbyteorder")("="));
  const std::span strides(array.strides(), static_cast<size_t>(array.ndim()));
  const bool fits =
      std::ranges::all_of(strides, [&](py::ssize_t stride) { return stride >= 0 && stride % array.itemsize() == 0; });
  return fits ? array : py::array(array.attr("copy")());
}

// Makes a tensor on the memory of an array.
at::Tensor borrowed(const py::array& array, c10::ScalarType dtype) {
  const at::IntArrayRef sizes(array.shape(), static_cast<size_t>(array.ndim()));
  void* const data = const_cast<void*>(array.data());
  if (array.flags() & py::array::c_style) return at::from_blob(data, sizes, dtype);
  at::DimVector strides;
  for (py::ssize_t i = 0; i < array.ndim(); ++i) strides.push_back(array.strides(i) / array.itemsize());
  return at::from_blob(data, sizes, strides, dtype);
}

// Makes an array of what is none yet.
py::array array_from(py::handle object, const ValueType& expected) {
  const py::module_ numpy = py::module_::import("numpy");
  const bool typed = py::hasattr(object, "dtype");  // a numpy scalar keeps its type, Python's own take the expected one
  const bool text = expected.element == ElementType::String;
  if (typed || !expected.known() || text) return numpy.attr(text && !typed ? "array" : "asarray")(object);
  return numpy.attr("asarray")(object, numpy_dtype(expected.element));
}

// Makes an array on the memory of a contiguous tensor.
py::array array_of(at::Tensor native, ElementType type) {
  std::vector<py::ssize_t> shape(native.sizes().begin(), native.sizes().end());
  const void* const data = native.const_data_ptr();
  const py::capsule keep(native.unsafeReleaseTensorImpl(), nullptr, [](PyObject* capsule) {
    at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(
        static_cast<c10::TensorImpl*>(PyCapsule_GetPointer(capsule, nullptr))));
  });
  return {numpy_dtype(type), std::move(shape), data, keep};
}

// Makes a tensor on the memory of an array that may outlive the caller's reference to it.
at::Tensor kept(ByteArray bytes) {
  void* const data = const_cast<uint8_t*>(bytes.data());
  const int64_t size = bytes.size();
  return view_of(data, {size}, c10::kByte, shared(std::move(bytes)));
}

py::object tensor_to_python(const at::Tensor& stored, ElementType type, const StringPool& strings, Form form) {
  if (type == ElementType::Undefined) type = element_type_of(stored.scalar_type());  // an ATen node gave it
  if (form == Form::Torch && type != ElementType::String) return tensor_to_torch(stored, type);
  const at::Tensor cpu = stored.is_cpu() ? stored : stored.cpu();
  if (type == ElementType::String) {
    const at::Tensor ids = cpu.contiguous();
    py::array array(py::dtype("O"), std::vector<py::ssize_t>(ids.sizes().begin(), ids.sizes().end()));
    auto** out = static_cast<PyObject**>(array.mutable_data());
    for (int64_t i = 0; i < ids.numel(); ++i) {
      Py_XDECREF(out[i]);
      out[i] = text(strings.at(ids.data_ptr<int64_t>()[i])).release().ptr();
    }
    return array;
  }
  return array_of(from_storage(type, cpu).contiguous(), type);
}

// Tells whether numpy makes an element of the type of the item, and the item is nothing else that numpy would turn into
// one.
bool can_be(ElementType type, py::handle item) {
  if (type == ElementType::String) return py::isinstance<py::str>(item) || py::isinstance<py::bytes>(item);
  return is_floating(type) ? PyNumber_Check(item.ptr()) != 0 : PyIndex_Check(item.ptr()) != 0;
}

// Makes an array of the keys or the values of a dictionary.
py::array column(const py::list& items, ElementType type) {
  for (const py::handle item : items) {
    if (!can_be(type, item)) throw py::type_error(py::str("{!r} is no {}").format(item, std::string(info(type).name)));
  }
  return py::module_::import("numpy").attr("array")(items, numpy_dtype(type));
}

py::object map_to_python(const IValue& value, const ValueType& type, const StringPool& strings) {
  const auto& parts = value.toTupleRef().elements();
  const py::object keys = tensor_to_python(parts[0].toTensor(), type.key, strings, Form::Numpy).attr("tolist")();
  const py::object values = tensor_to_python(parts[1].toTensor(), type.element, strings, Form::Numpy).attr("tolist")();
  return py::dict(py::module_::import("builtins").attr("zip")(keys, values));
}

}  // namespace

Fed Feeder::operator()(py::handle object, const InputSpec& expected) {
  return value(object, expected.type, expected.name);
}

Fed Feeder::value(py::handle object, const ValueType& expected, const std::string& name) {
  if (object.is_none()) return {expected, IValue()};
  switch (expected.kind) {
    case Kind::Optional: {
      Fed inner = value(object, *expected.inner, name);
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
        Fed fed = value(item, *expected.inner, name);
        inner = fed.type;
        items.push_back(std::move(fed.value));
      }
      return {ValueType::sequence(inner), items};
    }
    case Kind::Map: {
      const auto refuse = [&](const std::string& came) {
        throw InputError("the input \"" + name + "\" must be a dictionary (" + expected.str() + "); " + came);
      };
      if (!py::hasattr(object, "keys") || !py::hasattr(object, "values"))
        refuse("what came is " + py::cast<std::string>(py::repr(py::type::of(object))));
      const auto part = [&](const char* method, ElementType type) {
        return tensor(column(py::list(object.attr(method)()), type), ValueType::tensor(type), name).value;
      };
      try {
        return {expected, c10::ivalue::Tuple::create({part("keys", expected.key), part("values", expected.element)})};
      } catch (const py::builtin_exception& error) {
        refuse(error.what());
      } catch (const py::error_already_set& error) {
        refuse(py::cast<std::string>(py::str(error.value())));
      }
      break;
    }
    case Kind::Tensor:
      break;
  }
  return tensor(object, expected, name);
}

Fed Feeder::tensor(py::handle object, const ValueType& expected, const std::string& name) {
  const bool is_array = py::isinstance<py::array>(object);
  if (!is_array) {
    if (auto fed = fed_from_torch(object, expected.element, name)) return *std::move(fed);
  }
  py::array array = is_array ? py::reinterpret_borrow<py::array>(object) : array_from(object, expected);
  if (is_text(array)) return {ValueType::tensor(ElementType::String), string_tensor(array, strings_)};
  ElementType type = type_of_elements(array);
  // numpy has no bfloat16 of its own: where the model asks for it, uint16 holds its bits, as in onnx's own files
  // till 1.18.
  if (type == ElementType::Uint16 && expected.element == ElementType::Bfloat16) type = ElementType::Bfloat16;
  if (type == ElementType::Undefined) {
    throw InputError("the input \"" + name + "\" has the element type " + numpy_name(array) +
                     ", which ONNX does not have");
  }
  kept_.push_back(tensor_like(std::move(array)));
  return {ValueType::tensor(type), to_storage(type, borrowed(kept_.back(), native_dtype(type)))};
}

std::optional<Fed> memory_of(py::handle object) {
  if (!py::isinstance<py::array>(object)) return memory_of_torch(object);
  const auto array = py::reinterpret_borrow<py::array>(object);
  if (!array.writeable() || is_text(array) || !tensor_like(array).is(array)) return {};
  const ElementType type = type_of_elements(array);
  if (type == ElementType::Undefined || storage_dtype(type) != native_dtype(type)) return {};
  return Fed{ValueType::tensor(type), borrowed(array, native_dtype(type))};
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

py::list weights_to_python(const std::vector<std::vector<SavedWeights>>& saved) {
  py::list result;
  for (const auto& operation : saved) {
    py::list laid;
    for (const auto& [layout, bytes] : operation)
      laid.append(py::make_tuple(layout, array_of(bytes.contiguous(), ElementType::Uint8)));
    result.append(laid);
  }
  return result;
}

std::vector<std::vector<SavedWeights>> weights_from_python(const py::list& saved) {
  std::vector<std::vector<SavedWeights>> result;
  for (const py::handle operation : saved) {
    auto& laid = result.emplace_back();
    for (const py::handle item : operation) {
      auto [layout, bytes] = item.cast<std::pair<std::string, ByteArray>>();
      laid.push_back({layout, kept(std::move(bytes))});
    }
  }
  return result;
}

}  // namespace onnxtorch
