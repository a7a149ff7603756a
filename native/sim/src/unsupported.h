// Functions of the driver that exist so that programs which ask for them can start, and answer NOT_SUPPORTED.
#pragma once

#include <vector>

namespace memxsim {

struct Unsupported {
  const char* name;
  void* function;
};

const std::vector<Unsupported>& unsupported_functions();

}  // namespace memxsim
