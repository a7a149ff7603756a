// Which driver version brought which function, for simulating older drivers.
#pragma once

#include <string>

namespace memxsim {

constexpr int kNewestVersion = 13000;

int introduced_in(const std::string& function);  // 0: in all that are simulated

}  // namespace memxsim
