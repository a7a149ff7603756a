// What the planner's bindings share: columns of numbers, and work without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "problem.h"
#include "stop.h"
#include "worker.h"

namespace memx::plan {

namespace nb = nanobind;

using Column = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline std::span<const std::int64_t> view(const Column& column) { return {column.data(), column.shape(0)}; }

inline nb::object as_array(std::vector<Bytes>&& values) {
  auto* owned = new std::vector<Bytes>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<Bytes>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, Bytes, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

// Runs work without the GIL, and looks out for signals meanwhile: Python's handler may raise.
template <class Work>
auto run(double seconds, Work&& work) {
  std::atomic<bool> cancelled = false;
  Stop stop(seconds, cancelled);
  std::optional<decltype(work(stop))> result;
  {
    Worker worker([&] { result = work(stop); });
    for (bool done = false; !done;) {
      {
        nb::gil_scoped_release released;
        done = worker.wait_for(std::chrono::milliseconds(cancelled ? 1000 : 20));
      }
      if (!done && !cancelled && PyErr_CheckSignals() != 0) cancelled = true;
    }
    if (!cancelled) worker.rethrow();
  }
  if (cancelled) throw nb::python_error();
  return std::move(*result);
}

}  // namespace memx::plan
