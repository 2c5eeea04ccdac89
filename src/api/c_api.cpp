#include "onnx_torch/c_api.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <utility>

#include "onnx_torch/model.h"

namespace {

using namespace onnxtorch;  // NOLINT: these are its names in C

thread_local std::string last_error;

onnx_torch_status failed(onnx_torch_status status, const char* message) {
  try {
    last_error = message;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

// Calls a function, and makes a status of what it throws.
template <typename Function>
onnx_torch_status guarded(Function function) {
  try {
    function();
    return ONNX_TORCH_OK;
  } catch (const InvalidModelError& error) {
    return failed(ONNX_TORCH_INVALID_MODEL, error.what());
  } catch (const UnsupportedError& error) {
    return failed(ONNX_TORCH_UNSUPPORTED, error.what());
  } catch (const InputError& error) {
    return failed(ONNX_TORCH_INVALID_INPUT, error.what());
  } catch (const DeviceError& error) {
    return failed(ONNX_TORCH_NO_DEVICE, error.what());
  } catch (const StoppedError& error) {
    return failed(ONNX_TORCH_STOPPED, error.what());
  } catch (const RunError& error) {
    return failed(ONNX_TORCH_RUN_FAILED, error.what());
  } catch (const std::exception& error) {
    return failed(ONNX_TORCH_FAILED, error.what());
  } catch (...) {
    return failed(ONNX_TORCH_FAILED, "an exception of an unknown type");
  }
}

// Gives one of the caller's arguments, which must not be NULL.
template <typename T>
T* required(T* given, const char* name) {
  if (!given) throw InputError(std::string(name) + " must not be NULL");
  return given;
}

// Gives the options with zeros for what a program does not know that was compiled with an older header.
onnx_torch_options all_options(const onnx_torch_options& given) {
  constexpr size_t kOldest = offsetof(onnx_torch_options, max_iterations);
  if (given.size < kOldest) throw InputError("the size of the options is not set");
  onnx_torch_options all{};
  std::memcpy(&all, &given, std::min(given.size, sizeof all));
  return all;
}

Options options_from(const onnx_torch_options* options_or_null) {
  Options options;
  if (!options_or_null) return options;
  const onnx_torch_options given = all_options(*options_or_null);
  if (given.device) options.device = given.device;
  options.threads = given.threads;
  options.optimize = given.without_passes == 0;
  Limits& limits = options.limits;
  const std::pair<double, double*> given_limits[] = {{given.seconds, &limits.seconds},
                                                     {given.memory, &limits.memory},
                                                     {given.max_iterations, &limits.max_iterations},
                                                     {given.prepare_seconds, &limits.prepare_seconds},
                                                     {given.nodes, &limits.nodes},
                                                     {given.constant_bytes, &limits.constant_bytes}};
  for (const auto& [number, limit] : given_limits) {
    if (number != 0) *limit = number;
  }
  return options;
}

std::filesystem::path external_dir(const onnx_torch_options* options) {
  return options && options->external_dir ? options->external_dir : "";
}

// A value as the model declares it, with the texts and numbers that the caller is pointed to.
struct Described {
  std::string name, type;
  std::vector<int64_t> shape;
  onnx_torch_value value;

  Described(const std::string& given, const ValueType& of, const std::optional<std::vector<Dim>>& dims,
            bool has_default)
      : name(given), type(of.str()) {
    for (const Dim& dim : dims.value_or(std::vector<Dim>{})) shape.push_back(dim.size);
    const bool is_tensor = of.kind == ValueType::Kind::Tensor;
    const int32_t rank = dims ? static_cast<int32_t>(shape.size()) : -1;
    value = {nullptr, nullptr, is_tensor ? static_cast<int32_t>(of.element) : 0, has_default, rank, nullptr};
  }

  onnx_torch_value pointing() const {
    onnx_torch_value result = value;
    result.name = name.c_str();
    result.type = type.c_str();
    result.shape = value.rank < 0 ? nullptr : shape.data();
    return result;
  }
};

// Gives torch's type for ONNX's, as which its elements lie in the memory of a caller.
c10::ScalarType scalar_type(int32_t element, const std::string& name) {
  switch (static_cast<ElementType>(element)) {
    case ElementType::Float:
      return c10::kFloat;
    case ElementType::Uint8:
      return c10::kByte;
    case ElementType::Int8:
      return c10::kChar;
    case ElementType::Uint16:
      return c10::kUInt16;
    case ElementType::Int16:
      return c10::kShort;
    case ElementType::Int32:
      return c10::kInt;
    case ElementType::Int64:
      return c10::kLong;
    case ElementType::Bool:
      return c10::kBool;
    case ElementType::Float16:
      return c10::kHalf;
    case ElementType::Double:
      return c10::kDouble;
    case ElementType::Uint32:
      return c10::kUInt32;
    case ElementType::Uint64:
      return c10::kUInt64;
    case ElementType::Complex64:
      return c10::kComplexFloat;
    case ElementType::Complex128:
      return c10::kComplexDouble;
    case ElementType::Bfloat16:
      return c10::kBFloat16;
    case ElementType::Float8e4m3fn:
      return c10::kFloat8_e4m3fn;
    case ElementType::Float8e4m3fnuz:
      return c10::kFloat8_e4m3fnuz;
    case ElementType::Float8e5m2:
      return c10::kFloat8_e5m2;
    case ElementType::Float8e5m2fnuz:
      return c10::kFloat8_e5m2fnuz;
    case ElementType::Float8e8m0:
      return c10::kFloat8_e8m0fnu;
    case ElementType::Uint4:
    case ElementType::Uint2:
    case ElementType::Float4e2m1:
    case ElementType::Float6e2m3:
    case ElementType::Float6e3m2:
      return c10::kByte;
    case ElementType::Int4:
    case ElementType::Int2:
      return c10::kChar;
    default:
      break;
  }
  throw UnsupportedError("\"" + name + "\" is no tensor of numbers (element type " + std::to_string(element) +
                         "), which is all that the C interface takes and gives");
}

// Gives ONNX's number of the type that a tensor holds.
int32_t element_of(const at::Tensor& tensor) {
  constexpr auto kLast = static_cast<int32_t>(ElementType::Float8e8m0);
  for (int32_t element = 1; element <= kLast; ++element) {
    if (static_cast<ElementType>(element) != ElementType::String && scalar_type(element, "") == tensor.scalar_type())
      return element;
  }
  return 0;
}

// Makes a tensor on the caller's memory.
at::Tensor borrowed(const onnx_torch_tensor& given, const std::string& name) {
  const c10::ScalarType type = scalar_type(given.element_type, name);
  if (given.rank < 0 || (given.rank > 0 && !given.shape)) throw InputError("the input \"" + name + "\" has no shape");
  const at::IntArrayRef shape(given.shape, static_cast<size_t>(given.rank));
  size_t bytes = c10::elementSize(type);
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && bytes > std::numeric_limits<size_t>::max() / static_cast<size_t>(size)))
      throw InputError("the input \"" + name + "\" has a dimension of the size " + std::to_string(size));
    bytes *= static_cast<size_t>(size);
  }
  if (given.bytes != bytes || (bytes > 0 && !given.data)) {
    throw InputError("the input \"" + name + "\" takes " + std::to_string(bytes) + " bytes, not " +
                     std::to_string(given.data ? given.bytes : 0));
  }
  return bytes > 0 ? at::from_blob(given.data, shape, at::TensorOptions(type)) : at::empty(shape, type);
}

}  // namespace

struct onnx_torch_model {
  CompiledModel model;
  std::vector<Described> inputs, outputs;

  explicit onnx_torch_model(CompiledModel compiled) : model(std::move(compiled)) {
    for (const InputSpec& spec : model.inputs()) inputs.emplace_back(spec.name, spec.type, spec.dims, spec.has_default);
    for (const OutputSpec& spec : model.outputs()) outputs.emplace_back(spec.name, spec.type, spec.dims, false);
  }

  // Gives the name of an input or an output: the caller's, or that of its place.
  static std::string name_of(const std::vector<Described>& values, const onnx_torch_tensor& given, size_t place) {
    if (given.name) return given.name;
    if (place >= values.size()) throw InputError("the model has no value at the place " + std::to_string(place));
    return values[place].name;
  }
};

struct onnx_torch_results {
  std::vector<at::Tensor> tensors;
  std::vector<std::vector<int64_t>> shapes;
};

namespace {

onnx_torch_status describe(const std::vector<Described>& values, size_t number, onnx_torch_value* value) {
  return guarded([&] {
    if (number >= values.size()) throw InputError("the model has " + std::to_string(values.size()) + " of these");
    *required(value, "value") = values[number].pointing();
  });
}

// Fills the caller's buffer, or points to the result.
void give(const at::Tensor& result, int32_t element, onnx_torch_tensor& output, const std::string& name) {
  const size_t bytes = result.nbytes();
  if (output.data) {
    if (output.bytes < bytes) {
      throw InputError("the output \"" + name + "\" has " + std::to_string(bytes) + " bytes, and the buffer " +
                       std::to_string(output.bytes));
    }
    if (bytes > 0) std::memcpy(output.data, result.const_data_ptr(), bytes);
  } else {
    output.data = result.data_ptr();
  }
  output.bytes = bytes;
  output.element_type = element;
  output.rank = static_cast<int32_t>(result.dim());
}

void run(const onnx_torch_model& model, std::span<const onnx_torch_tensor> inputs, std::span<onnx_torch_tensor> outputs,
         onnx_torch_results** results) {
  std::map<std::string, Data> feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = onnx_torch_model::name_of(model.inputs, inputs[i], i);
    if (!feeds.emplace(name, borrowed(inputs[i], name)).second) throw InputError("\"" + name + "\" is fed twice");
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs.size(); ++i) {
    names.push_back(onnx_torch_model::name_of(model.outputs, outputs[i], i));
    if (!results && !outputs[i].data) throw InputError("results must not be NULL where an output has no buffer");
  }
  if (names.empty()) throw InputError("a run needs an output that is asked for");
  const Outputs given = model.model.run(Feeds(std::move(feeds)), names);

  auto held = std::make_unique<onnx_torch_results>();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto* tensor = std::get_if<at::Tensor>(&given[i].value());
    if (!tensor) throw UnsupportedError("the output \"" + names[i] + "\" is no tensor of numbers");
    held->tensors.push_back(tensor->cpu().contiguous());
    held->shapes.push_back(tensor->sizes().vec());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto declared = std::ranges::find(model.outputs, names[i], &Described::name);
    const int32_t known = declared == model.outputs.end() ? 0 : declared->value.element_type;
    const int32_t element = known ? known : element_of(held->tensors[i]);
    give(held->tensors[i], element, outputs[i], names[i]);
    outputs[i].shape = results ? held->shapes[i].data() : nullptr;
  }
  if (results) *results = held.release();
}

}  // namespace

extern "C" {

int32_t onnx_torch_c_api_version() { return ONNX_TORCH_C_API_VERSION; }

const char* onnx_torch_last_error() { return last_error.c_str(); }

onnx_torch_status onnx_torch_load(const char* path, const onnx_torch_options* options, onnx_torch_model** model) {
  return guarded([&] {
    const Model loaded = Model::load(required(path, "path"), external_dir(options));
    *required(model, "model") = new onnx_torch_model(loaded.compile(options_from(options)));
  });
}

onnx_torch_status onnx_torch_load_bytes(const void* bytes, size_t size, const onnx_torch_options* options,
                                        onnx_torch_model** model) {
  return guarded([&] {
    const std::string_view text(static_cast<const char*>(required(bytes, "bytes")), size);
    const Model loaded = Model::from_bytes(text, external_dir(options));
    *required(model, "model") = new onnx_torch_model(loaded.compile(options_from(options)));
  });
}

void onnx_torch_free(onnx_torch_model* model) { delete model; }

size_t onnx_torch_input_count(const onnx_torch_model* model) { return model ? model->inputs.size() : 0; }
size_t onnx_torch_output_count(const onnx_torch_model* model) { return model ? model->outputs.size() : 0; }

onnx_torch_status onnx_torch_input(const onnx_torch_model* model, size_t number, onnx_torch_value* value) {
  return model ? describe(model->inputs, number, value) : failed(ONNX_TORCH_INVALID_INPUT, "model must not be NULL");
}

onnx_torch_status onnx_torch_output(const onnx_torch_model* model, size_t number, onnx_torch_value* value) {
  return model ? describe(model->outputs, number, value) : failed(ONNX_TORCH_INVALID_INPUT, "model must not be NULL");
}

onnx_torch_status onnx_torch_run(const onnx_torch_model* model, const onnx_torch_tensor* inputs, size_t input_count,
                                 onnx_torch_tensor* outputs, size_t output_count, onnx_torch_results** results) {
  return guarded([&] {
    required(model, "model");
    if (input_count > 0) required(inputs, "inputs");
    if (output_count > 0) required(outputs, "outputs");
    run(*model, {inputs, input_count}, {outputs, output_count}, results);
  });
}

void onnx_torch_free_results(onnx_torch_results* results) { delete results; }

}  // extern "C"
