// What a device's driver can do, tried rather than read off its flags.
#pragma once

#include <cstdint>
#include <string>

namespace memx {

struct Probe {
  int driver_version = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t page_bytes = 0;
  bool virtual_memory = false;  // reserve, create, map and set access work
  bool host_mapping = false;    // ... with host memory too
  bool context_events = false;  // cuCtxRecordEvent
  std::string failure;          // what the first step that failed said
};

Probe probe(int device);

}  // namespace memx
