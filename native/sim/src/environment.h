// MEMX_SIMULATE, for processes in which nobody calls memxsim_configure.
#pragma once

#include <string>

#include "memx_sim.h"

namespace memxsim {

enum class Setting { none, good, bad };

// Reads "memory=1GiB,page=64KiB,devices=2", or "1" for the defaults, as memx.sim does; `error` says what is bad.
Setting from_environment(memxsim_config* config, std::string* error);

}  // namespace memxsim
