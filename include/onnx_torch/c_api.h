/* The library for C, and for what speaks C: load a model, ask what it takes and gives, run it.
 *
 *   onnx_torch_model* model = NULL;
 *   if (onnx_torch_load("model.onnx", NULL, &model) != ONNX_TORCH_OK) puts(onnx_torch_last_error());
 *
 * Functions, numbers and the fields of structs stay as they are; what is added comes at the end. A struct that may grow
 * begins with its size in bytes. No function throws, and any thread may call any of them; a model, or results, are
 * freed when nobody uses them any more. */
#ifndef ONNX_TORCH_C_API_H
#define ONNX_TORCH_C_API_H

#include <stddef.h>
#include <stdint.h>

#include "onnx_torch/visibility.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface, which grows with each function that is added. */
#define ONNX_TORCH_C_API_VERSION 1
ONNX_TORCH_API int32_t onnx_torch_c_api_version(void);

typedef enum onnx_torch_status {
  ONNX_TORCH_OK = 0,
  ONNX_TORCH_INVALID_MODEL = 1, /* it breaks the ONNX specification, or its files cannot be read */
  ONNX_TORCH_UNSUPPORTED = 2,   /* operators that cannot be translated; values that are no tensors of numbers */
  ONNX_TORCH_INVALID_INPUT = 3, /* what the caller gave does not fit */
  ONNX_TORCH_NO_DEVICE = 4,     /* the device that was asked for is not there */
  ONNX_TORCH_RUN_FAILED = 5,    /* a node failed */
  ONNX_TORCH_STOPPED = 6,       /* a run took more than it may */
  ONNX_TORCH_FAILED = 7         /* anything else, such as memory that cannot be had */
} onnx_torch_status;

/* Gives what the latest call of this thread that failed has to say; "" where none has. It is there until the next
 * one. */
ONNX_TORCH_API const char* onnx_torch_last_error(void);

typedef struct onnx_torch_options {
  size_t size;              /* sizeof(onnx_torch_options) */
  const char* device;       /* "CPU" or "CUDA:n"; NULL: the CPU */
  int32_t threads;          /* the number that one run uses on the CPU; 0: as many as the process does */
  int32_t without_passes;   /* not 0: the model's operators one by one */
  double seconds;           /* the time that a run may take; 0: any */
  double memory;            /* bytes of tensors that a run may use, besides weights and inputs; 0: any */
  const char* external_dir; /* the folder of external data; NULL: beside the file, and for bytes none */
  double max_iterations;    /* of one Loop; 0: any number */
  double prepare_seconds;   /* the time that loading may take; 0: any */
  double nodes;             /* of the model once functions are inlined; 0: a million */
  double constant_bytes;    /* of what follows from constants while loading; 0: what the machine has */
} onnx_torch_options;

/* A model ready to run. Any number of threads may run one at the same time. */
typedef struct onnx_torch_model onnx_torch_model;

/* Makes a model ready to run. Options may be NULL. */
ONNX_TORCH_API onnx_torch_status onnx_torch_load(const char* path, const onnx_torch_options* options,
                                                 onnx_torch_model** model);
ONNX_TORCH_API onnx_torch_status onnx_torch_load_bytes(const void* bytes, size_t size,
                                                       const onnx_torch_options* options, onnx_torch_model** model);
ONNX_TORCH_API void onnx_torch_free(onnx_torch_model* model); /* does nothing with NULL */

/* An input or an output, as the model declares it. What it points to lives as long as the model. */
typedef struct onnx_torch_value {
  const char* name;
  const char* type;     /* ONNX's, such as "tensor(float)" */
  int32_t element_type; /* ONNX's number, TensorProto.DataType; 0 where it is no tensor */
  int32_t has_default;  /* of an input: it may be left out */
  int32_t rank;         /* -1: open */
  const int64_t* shape; /* -1: open; NULL where the rank is */
} onnx_torch_value;

ONNX_TORCH_API size_t onnx_torch_input_count(const onnx_torch_model* model);
ONNX_TORCH_API size_t onnx_torch_output_count(const onnx_torch_model* model);
ONNX_TORCH_API onnx_torch_status onnx_torch_input(const onnx_torch_model* model, size_t number,
                                                  onnx_torch_value* value);
ONNX_TORCH_API onnx_torch_status onnx_torch_output(const onnx_torch_model* model, size_t number,
                                                   onnx_torch_value* value);

/* A tensor of numbers in the host's memory, contiguous and in row-major order. Elements of 2, 4 and 6 bits lie one to a
 * byte. */
typedef struct onnx_torch_tensor {
  const char* name;     /* NULL: the one at this place */
  int32_t element_type; /* ONNX's number */
  int32_t rank;
  const int64_t* shape;
  void* data;
  size_t bytes; /* of the data; of an output: how many there may be, then how many there are */
} onnx_torch_tensor;

/* The memory of a run's outputs. */
typedef struct onnx_torch_results onnx_torch_results;

/* Runs the model.
 *
 * Inputs are only read. Of an output, name and data are looked at: where the data are NULL they are given, and else the
 * caller's buffer of so many bytes, which is filled. All other fields are set. Only what the outputs need is computed.
 * Shapes, and data that were NULL, live until the results are freed; `results` may be NULL where the caller wants
 * neither, and has a buffer for each output. */
ONNX_TORCH_API onnx_torch_status onnx_torch_run(const onnx_torch_model* model, const onnx_torch_tensor* inputs,
                                                size_t input_count, onnx_torch_tensor* outputs, size_t output_count,
                                                onnx_torch_results** results);
ONNX_TORCH_API void onnx_torch_free_results(onnx_torch_results* results); /* does nothing with NULL */

#ifdef __cplusplus
}
#endif

#endif
