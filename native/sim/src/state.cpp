#include "state.h"

#include <pthread.h>

#include <cstdlib>

namespace memxsim {

Driver& driver() {
  static auto* instance = new Driver;
  return *instance;
}

bool is_sticky(CUresult code) {
  switch (code) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

void poison(Context& context, CUresult code) {
  if (context.error) return;
  context.error = code;
  int none = CUDA_SUCCESS;
  driver().sticky.compare_exchange_strong(none, code);
}

void poison_current_context(CUresult code) {
  const Lock lock(driver().lock);
  if (Context* context = current_context()) poison(*context, code);
}

}  // namespace memxsim
