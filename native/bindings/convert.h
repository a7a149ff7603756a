// What the bindings share: the GIL, and arguments from Python to the core's types.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>

#include "memx/resource.h"

namespace memx {

// Lets go of the GIL for a scope. A thread that wants it back when the interpreter is already going is ended by CPython
// (before 3.14) from inside, which no frame above survives: such a thread stays here until the process is gone.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

using NoGil = nanobind::call_guard<GilRelease>;

inline CUstream as_stream(std::uint64_t handle) { return reinterpret_cast<CUstream>(handle); }

// Any Python integer: one that no size can be is refused as a value, not as a type.
std::uint64_t as_size(nanobind::handle number, const char* what);

Config as_config(int device, nanobind::handle device_limit, nanobind::handle host_limit, const std::string& reuse, bool lazy,
                 bool oversubscribe, nanobind::handle page, bool framework, const std::string& eviction);

Placement as_placement(const std::string& name);
const char* name_of(Place place);

// A callable (memoryview, offset), or a buffer to copy from; it outlives the allocation.
std::shared_ptr<Source> as_source(nanobind::object from, std::uint64_t bytes);
// A callable (list of (address, bytes, place)); None: nobody.
Resource::Listener as_listener(nanobind::object callable);

void bind_torch(nanobind::module_& m);

}  // namespace memx
