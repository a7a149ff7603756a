#include "convert.h"

#include <nanobind/stl/string.h>
#include <unistd.h>

namespace nb = nanobind;

namespace memx {

GilRelease::~GilRelease() {
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {
    for (;;) pause();
  }
}

std::uint64_t as_size(nb::handle number, const char* what) {
  if (!PyLong_Check(number.ptr())) throw nb::type_error((std::string(what) + " must be an integer").c_str());
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow > 0) return ~0ull;
  if (overflow < 0 || value < 0)
    throw Error(ErrorKind::kInvalidValue, std::string(what) + " cannot be negative: " + nb::cast<std::string>(nb::str(number)));
  return static_cast<std::uint64_t>(value);
}

static ReuseMode as_mode(const std::string& name) {
  if (name == "stream") return ReuseMode::kStream;
  if (name == "default") return ReuseMode::kDefault;
  if (name == "mutual") return ReuseMode::kMutual;
  throw Error(ErrorKind::kInvalidValue, "reuse mode '" + name + "' is unknown: it is 'stream', 'default' or 'mutual'");
}

static EvictionPolicy as_policy(const std::string& name) {
  if (name == "lru") return EvictionPolicy::kLru;
  if (name == "clock") return EvictionPolicy::kClock;
  if (name == "cost") return EvictionPolicy::kCost;
  throw Error(ErrorKind::kInvalidValue, "eviction policy '" + name + "' is unknown: it is 'cost', 'lru' or 'clock'");
}

Placement as_placement(const std::string& name) {
  if (name == "device") return Placement::kDevice;
  if (name == "prefer_device") return Placement::kPreferDevice;
  if (name == "host") return Placement::kHost;
  throw Error(ErrorKind::kInvalidValue, "placement '" + name + "' is unknown: it is 'prefer_device', 'device' or 'host'");
}

const char* name_of(Place place) {
  static const char* const kNames[] = {"device", "host", "unbacked", "lazy"};
  return kNames[static_cast<int>(place)];
}

Config as_config(int device, nb::handle device_limit, nb::handle host_limit, const std::string& reuse, bool lazy,
                 bool oversubscribe, nb::handle page, bool framework, const std::string& eviction) {
  Config config;
  config.device = device;
  config.device_limit = as_size(device_limit, "device_limit");
  config.host_limit = as_size(host_limit, "host_limit");
  config.page_bytes = as_size(page, "page");
  config.reuse = as_mode(reuse);
  config.lazy = lazy;
  config.oversubscribe = oversubscribe;
  config.framework = framework;
  config.eviction = as_policy(eviction);
  return config;
}

}  // namespace memx
