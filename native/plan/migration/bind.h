#pragma once

#include <nanobind/nanobind.h>

namespace memx::plan::migration {

void bind(nanobind::module_& m);

}  // namespace memx::plan::migration
