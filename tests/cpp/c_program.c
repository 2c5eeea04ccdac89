// A program that describes the model of its argument, runs it with numbers that it counts, and prints what comes, by
// the C interface alone.
#include <stdio.h>
#include <stdlib.h>

#include "onnx_torch/c_api.h"

enum { FLOAT = 1, SIZE = 6 };

static void check(onnx_torch_status status) {
  if (status == ONNX_TORCH_OK) return;
  fprintf(stderr, "%d: %s\n", (int)status, onnx_torch_last_error());
  exit((int)status);
}

static void describe(const char* what, const onnx_torch_value* value) {
  printf("%s %s %s", what, value->name, value->type);
  for (int32_t i = 0; i < value->rank; ++i) printf(" %lld", (long long)value->shape[i]);
  printf("%s\n", value->has_default ? " (may be left out)" : "");
}

static void print(const onnx_torch_tensor* tensor) {
  const float* numbers = tensor->data;
  printf("%s:", tensor->name);
  for (size_t i = 0; i < tensor->bytes / sizeof(float); ++i) printf(" %g", (double)numbers[i]);
  printf("\n");
}

int main(int count, char** arguments) {
  if (count < 2) return 99;
  onnx_torch_options options = {.size = sizeof options, .device = "CPU", .threads = 1};
  onnx_torch_model* model = NULL;
  check(onnx_torch_load(arguments[1], &options, &model));
  onnx_torch_value value;
  for (size_t i = 0; i < onnx_torch_input_count(model); ++i) {
    check(onnx_torch_input(model, i, &value));
    describe("input", &value);
  }
  for (size_t i = 0; i < onnx_torch_output_count(model); ++i) {
    check(onnx_torch_output(model, i, &value));
    describe("output", &value);
  }

  float numbers[SIZE], buffer[SIZE];
  for (int i = 0; i < SIZE; ++i) numbers[i] = (float)i;
  const int64_t shape[] = {2, 3};
  const onnx_torch_tensor input = {NULL, FLOAT, 2, shape, numbers, sizeof numbers};
  // The first output goes into a buffer of our own, the second one where the library likes.
  onnx_torch_tensor outputs[] = {{"y", 0, 0, NULL, buffer, sizeof buffer}, {"z", 0, 0, NULL, NULL, 0}};
  onnx_torch_results* results = NULL;
  check(onnx_torch_run(model, &input, 1, outputs, 2, &results));
  if (outputs[0].data != buffer || outputs[1].rank != 2 || outputs[1].shape[1] != 3) return 98;
  print(&outputs[0]);
  print(&outputs[1]);
  onnx_torch_free_results(results);
  onnx_torch_free(model);
  return 0;
}
