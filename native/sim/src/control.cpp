// cuInit and the control interface of memx_sim.h.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_set>

#include "context.h"
#include "environment.h"
#include "json.h"
#include "versions.h"

using namespace memxsim;

namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

const memxsim_config& defaults() {
  static const memxsim_config config{8 * kGiB, 16 * kGiB, 2 << 20, 1, 0, 0, 1, 0};
  return config;
}

bool g_configured = false;  // with the lock

bool usable(const memxsim_config& c) {
  return c.page_bytes >= kHostPage && (c.page_bytes & (c.page_bytes - 1)) == 0 && c.page_bytes <= kGiB &&
         c.devices >= 1 && c.devices <= kMaxDevices && c.device_bytes >= c.page_bytes && c.device_bytes <= 1024 * kGiB &&
         c.host_bytes <= 1024 * kGiB;
}

void configure(const memxsim_config& config) {
  driver().config = config;
  g_version = config.driver_version ? static_cast<int>(config.driver_version) : kNewestVersion;
  g_configured = true;
}

// What nobody configured is as the environment says.
bool configure_from_environment() {
  memxsim_config config = defaults();
  std::string error;
  Setting setting = from_environment(&config, &error);
  if (setting == Setting::good && !usable(config)) {
    setting = Setting::bad;
    error = "no simulated device can be so";
  }
  if (setting == Setting::bad)
    std::fprintf(stderr, "memx: MEMX_SIMULATE=%s: %s\n", std::getenv("MEMX_SIMULATE"), error.c_str());
  else
    configure(config);
  return setting != Setting::bad;
}

size_t answer(const std::string& text, char* out, size_t size) {
  const size_t needed = text.size() + 1;
  if (out && size >= needed) std::memcpy(out, text.c_str(), needed);
  return needed;
}

template <typename Answer>
size_t answer_locked(char* out, size_t size, Answer&& make) {
  if (g_forked) return answer("{}", out, size);
  const Lock lock(driver().lock);
  return answer(make(driver()), out, size);
}

std::string usage(Driver& d) {
  JsonArray devices;
  const bool open = g_initialised;
  for (uint32_t i = 0; open && i < d.config.devices; ++i) devices.add_raw(std::to_string(d.store.used(static_cast<int>(i))));
  JsonObject object;
  object.add_raw("device_bytes", devices.text());
  object.add("host_bytes", open ? d.store.used(kHost) : uint64_t{0});
  std::unordered_set<const Phys*> mapped_only;  // released handles that a mapping keeps
  for (const auto& [va, region] : d.addresses.regions())
    if (region.kind == Region::Kind::mapping && region.phys->handle_refs == 0) mapped_only.insert(region.phys.get());
  object.add("handles", uint64_t{d.handles.size() + mapped_only.size()});
  object.add("mappings", uint64_t{d.addresses.mappings()});
  object.add("reservations", uint64_t{d.addresses.reservations()});
  object.add("streams", uint64_t{d.streams.in_use()});
  object.add("events", uint64_t{d.events.in_use()});
  object.add("modules", uint64_t{d.modules});
  object.add("pinned_bytes", d.store.pinned());
  return object.text();
}

Queue* control_queue(void* stream) {
  CUresult error = CUDA_SUCCESS;
  if (!current_context() && reinterpret_cast<uintptr_t>(stream) <= 2) {
    Context* primary = primary_context(0);
    if (!primary || !primary->alive) return nullptr;
    return reinterpret_cast<uintptr_t>(stream) == 2 ? &per_thread_queue(*primary) : primary->legacy.get();
  }
  return queue_of(static_cast<CUstream>(stream), &error);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
  ENTER_ANY(cuInit);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const Lock lock(d.lock);
  if (g_initialised) return CUDA_SUCCESS;
  if (!g_configured && !configure_from_environment()) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<uint64_t> device_bytes(d.config.devices, d.config.device_bytes);
  if (!d.store.open(device_bytes, d.config.host_bytes, d.config.accounting_only)) return CUDA_ERROR_OUT_OF_MEMORY;
  set_fault_seed(d.config.seed);
  pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
  std::atexit([] { g_exiting = true; });
  g_initialised.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  ENTER_ANY(cuDriverGetVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = g_version;
  return CUDA_SUCCESS;
}

int memxsim_configure(const memxsim_config* config) {
  if (!config || !usable(*config)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  if (g_initialised) return CUDA_ERROR_ALREADY_MAPPED;
  configure(*config);
  return CUDA_SUCCESS;
}

int memxsim_hold(void* stream) {
  if (g_forked || !g_initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const Lock lock(driver().lock);
  Queue* queue = control_queue(stream);
  if (!queue) return CUDA_ERROR_INVALID_HANDLE;
  hold(*queue);
  return CUDA_SUCCESS;
}

int memxsim_release(void* stream) {
  if (g_forked || !g_initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const Lock lock(driver().lock);
  Queue* queue = control_queue(stream);
  if (!queue) return CUDA_ERROR_INVALID_HANDLE;
  release(*queue);
  return CUDA_SUCCESS;
}

int memxsim_fail(const char* function, uint64_t at, uint64_t every, double probability, uint64_t from, int code) {
  return set_fault(function, at, every, probability, from, code);
}

int memxsim_set_thread_clocks(int each_thread) {
  if (g_initialised) return CUDA_ERROR_ALREADY_MAPPED;
  const Lock lock(driver().lock);
  driver().oracle.set_thread_clocks(each_thread != 0);
  return CUDA_SUCCESS;
}

size_t memxsim_calls_json(char* out, size_t size) { return answer(calls_json(), out, size); }
size_t memxsim_races_json(char* out, size_t size) {
  return answer_locked(out, size, [](Driver& d) { return d.oracle.json(); });
}
size_t memxsim_usage_json(char* out, size_t size) { return answer_locked(out, size, usage); }
size_t memxsim_costs_json(char* out, size_t size) { return answer(costs_json(), out, size); }

int memxsim_set_cost(const char* function, double us) {
  if (!function || !(us >= 0)) return CUDA_ERROR_INVALID_VALUE;
  set_cost(function, us);
  return CUDA_SUCCESS;
}

double memxsim_modelled_us(void) { return modelled_us(); }
void memxsim_count(const char* name) { count_named(name); }
void memxsim_reset_counts(void) { reset_counts(); }

void memxsim_clear_races(void) {
  if (g_forked) return;
  const Lock lock(driver().lock);
  driver().oracle.clear();
}

uint64_t memxsim_race_count(void) {
  if (g_forked) return 0;
  const Lock lock(driver().lock);
  return driver().oracle.count();
}

}  // extern "C"
