#include "base/thread_limit.h"

#include <ATen/Parallel.h>
#include <omp.h>

// MKL inside libtorch has a number of its own once torch.set_num_threads was called; a libtorch without MKL lacks this.
// The C function has capitals: the lower-case one is for Fortran.
extern "C" int MKL_Set_Num_Threads_Local(int threads) __attribute__((weak));

namespace onnxtorch {

ThreadLimit::ThreadLimit(int threads) : active_(threads > 0) {
  if (!active_) return;
  openmp_ = at::get_num_threads();  // sets the number of a thread that is new to ATen, which must not happen later
  omp_set_num_threads(threads);
  if (MKL_Set_Num_Threads_Local) mkl_ = MKL_Set_Num_Threads_Local(threads);
}

ThreadLimit::~ThreadLimit() {
  if (!active_) return;
  omp_set_num_threads(openmp_);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(mkl_);
}

}  // namespace onnxtorch
