// Texts of models as Python's strings.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <string_view>

namespace onnxtorch {

// Gives a model's text to Python. Bytes that are not UTF-8 become U+FFFD.
inline pybind11::str text(std::string_view bytes) {
  PyObject* const decoded = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (!decoded) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(decoded);
}

template <typename Texts>
pybind11::list texts(const Texts& all) {
  pybind11::list decoded;
  for (const auto& one : all) decoded.append(text(one));
  return decoded;
}

}  // namespace onnxtorch
