// The devices that models are prepared for.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace onnxtorch {

// "CPU", "cuda:1", … → a device that is there; throws DeviceError, which says why it is not.
c10::Device available_device(const std::string& name);

// How many CUDA devices are there. The libraries of CUDA are loaded only where a driver is.
int cuda_device_count();

// Takes so many CUDA devices to be there, for tests on machines without one: these answer ATen's calls themselves.
void assume_cuda_devices(int count);

}  // namespace onnxtorch
