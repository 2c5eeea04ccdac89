// The devices that models are prepared for.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace onnxtorch {

// Gives the device that "CPU", "cuda:1", … names. Throws DeviceError, which says why, where it is not there.
c10::Device available_device(const std::string& name);

// Counts the CUDA devices that are there. Loads the libraries of CUDA only where a driver is installed.
int cuda_device_count();

// Makes the library take so many CUDA devices to be there. It is for tests on machines without one, and these tests
// answer ATen's calls themselves.
void assume_cuda_devices(int count);

}  // namespace onnxtorch
