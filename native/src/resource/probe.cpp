#include "memx/probe.h"

#include "memx/resource.h"

namespace memx {

Probe probe(int ordinal) {
  Probe out;
  out.driver_version = driver().version;
  out.context_events = driver().cuCtxRecordEvent != nullptr;
  try {
    Config config;
    config.device = ordinal;
    config = checked(config);
    out.page_bytes = config.page_bytes;
    config.device_limit = 2 * config.page_bytes;
    config.host_limit = 2 * config.page_bytes;
    Device device(ordinal);
    out.total_bytes = device.total_bytes();
    Resource resource(config);
    resource.free(resource.allocate(config.page_bytes, nullptr, 0, Placement::kDevice, 0));
    out.virtual_memory = true;
    out.host_mapping = resource.host_mappable();
  } catch (const Error& error) {
    out.failure = error.what();
  }
  return out;
}

}  // namespace memx
