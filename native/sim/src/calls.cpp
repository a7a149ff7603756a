#include "calls.h"

#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>
#include <vector>

#include "json.h"
#include "state.h"
#include "versions.h"

namespace memxsim {

std::atomic<bool> g_initialised{false};
std::atomic<bool> g_exiting{false};
std::atomic<bool> g_forked{false};
std::atomic<int> g_version{kNewestVersion};
constinit thread_local bool t_in_host_function = false;

Function::Function(const char* base_name) : name(base_name), since(introduced_in(base_name)) {}

namespace {

struct Fault {
  uint64_t seen = 0;
  uint64_t at = 0, every = 0, from = 0;
  double probability = 0;
  CUresult code = CUDA_SUCCESS;
  bool empty() const { return !at && !every && !from && probability <= 0; }
};

// Microseconds a call on hardware, 2 MiB handles where size matters: published figures, middle of the range.
const std::map<std::string, double>& default_costs() {
  static const auto* table = new std::map<std::string, double>{
      {"cuMemAddressReserve", 5.0},
      {"cuMemAddressFree", 5.0},
      {"cuMemCreate", 60.0},
      {"cuMemMap", 2.0},
      {"cuMemSetAccess", 37.0},
      {"cuMemUnmap", 30.0},
      {"cuMemRelease", 23.0},
      {"cuMemAlloc", 60.0},
      {"cuMemFree", 60.0},
      {"cuMemAllocHost", 100.0},
      {"cuMemHostAlloc", 100.0},
      {"cuMemFreeHost", 100.0},
      {"cuMemAllocAsync", 3.0},
      {"cuMemAllocFromPoolAsync", 3.0},
      {"cuMemFreeAsync", 2.0},
      {"cuLaunchKernel", 3.0},
      {"cuLaunchKernelEx", 3.0},
      {"cuLaunchHostFunc", 3.0},
      {"cuMemcpyAsync", 3.0},
      {"cuMemcpyHtoDAsync", 3.0},
      {"cuMemcpyDtoHAsync", 3.0},
      {"cuMemcpyDtoDAsync", 3.0},
      {"cuMemcpyHtoD", 8.0},
      {"cuMemcpyDtoH", 8.0},
      {"cuMemcpyDtoD", 5.0},
      {"cuMemsetD8Async", 3.0},
      {"cuMemsetD32Async", 3.0},
      {"cuEventCreate", 1.0},
      {"cuEventDestroy", 0.5},
      {"cuEventRecord", 1.5},
      {"cuEventQuery", 0.5},
      {"cuEventSynchronize", 5.0},
      {"cuStreamWaitEvent", 1.0},
      {"cuStreamQuery", 0.5},
      {"cuStreamSynchronize", 5.0},
      {"cuStreamGetId", 0.05},
      {"cuStreamIsCapturing", 0.05},
      {"cuThreadExchangeStreamCaptureMode", 0.05},
      {"cuCtxSynchronize", 5.0},
      {"cuCtxRecordEvent", 3.0},
      {"cuPointerGetAttribute", 0.3},
      {"cuPointerGetAttributes", 0.5},
      {"cuMemGetInfo", 5.0},
      {"cuGraphLaunch", 5.0},
  };
  return *table;
}

struct Registry {
  std::mutex lock;
  std::unordered_map<std::string, std::unique_ptr<Function>> functions;
  std::unordered_map<std::string, Fault> faults;
  std::map<std::string, double> costs;
  std::mt19937_64 random{0};
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

constexpr double kOtherCallUs = 0.1;
const char kEveryFunction[] = "*";

double cost_of(const Registry& all, const std::string& name) {
  if (const auto set = all.costs.find(name); set != all.costs.end()) return set->second;
  const auto& defaults = default_costs();
  if (const auto known = defaults.find(name); known != defaults.end()) return known->second;
  return name.find(':') == std::string::npos ? kOtherCallUs : 0.0;
}

std::atomic<bool> g_every_function_armed{false};

CUresult strike(Fault& fault, Registry& all) {
  ++fault.seen;
  bool fails = false;
  if (fault.at && fault.seen == fault.at) {
    fails = true;
    fault.at = 0;
  }
  if (fault.every && fault.seen % fault.every == 0) fails = true;
  if (fault.from && fault.seen >= fault.from) fails = true;
  if (fault.probability > 0 && std::uniform_real_distribution<>(0, 1)(all.random) < fault.probability) fails = true;
  return fails ? fault.code : CUDA_SUCCESS;
}

CUresult injected(Function& function) {
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  CUresult code = CUDA_SUCCESS;
  for (const char* key : {function.name.c_str(), kEveryFunction}) {
    const auto found = all.faults.find(key);
    if (found == all.faults.end()) continue;
    const CUresult struck = strike(found->second, all);
    if (code == CUDA_SUCCESS) code = struck;
    if (found->second.empty()) {
      all.faults.erase(found);
      if (key == kEveryFunction)
        g_every_function_armed = false;
      else
        function.fault_armed = false;
    }
  }
  return code;
}

Function& named(Registry& all, const std::string& name) {
  auto& slot = all.functions[name];
  if (!slot) {
    slot = std::make_unique<Function>(name.c_str());
    slot->fault_armed = all.faults.count(name) > 0;
  }
  return *slot;
}

}  // namespace

Function& function_named(const char* name) {
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  return named(all, name);
}

void count_named(const std::string& name) { function_named(name.c_str()).calls.fetch_add(1, std::memory_order_relaxed); }

CUresult enter(Function& function, Needs needs) {
  if (g_forked.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_INITIALIZED;
  if (g_exiting.load(std::memory_order_relaxed)) return CUDA_ERROR_DEINITIALIZED;
  function.calls.fetch_add(1, std::memory_order_relaxed);
  if (function.fault_armed.load(std::memory_order_relaxed) ||
      g_every_function_armed.load(std::memory_order_relaxed)) [[unlikely]] {
    if (const CUresult code = injected(function)) {
      if (is_sticky(code)) poison_current_context(code);
      return code;
    }
  }
  if (t_in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  if (function.since > g_version.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_SUPPORTED;
  if (needs == Needs::init && !g_initialised.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

void set_fault_seed(uint64_t seed) {
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  all.random.seed(seed);
}

int set_fault(const char* function, uint64_t at, uint64_t every, double probability, uint64_t from, int code) {
  if (!function || !*function || probability < 0 || probability > 1) return CUDA_ERROR_INVALID_VALUE;
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  Fault fault{0, at, every, from, probability, static_cast<CUresult>(code)};
  const bool armed = !fault.empty();
  if (armed && code == CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  if (armed)
    all.faults[function] = fault;
  else
    all.faults.erase(function);
  if (std::string(function) == kEveryFunction)
    g_every_function_armed = armed;
  else
    named(all, function).fault_armed = armed;
  return CUDA_SUCCESS;
}

std::string calls_json() {
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  std::map<std::string, uint64_t> sorted;
  for (const auto& [name, function] : all.functions)
    if (const uint64_t calls = function->calls.load(std::memory_order_relaxed)) sorted[name] = calls;
  JsonObject object;
  for (const auto& [name, calls] : sorted) object.add(name, calls);
  return object.text();
}

std::string costs_json() {
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  std::map<std::string, double> table = default_costs();
  for (const auto& [name, us] : all.costs) table[name] = us;
  JsonObject object;
  for (const auto& [name, us] : table) object.add(name, us);
  return object.text();
}

void set_cost(const char* function, double us) {
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  all.costs[function] = us;
}

double modelled_us() {
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  double sum = 0;
  for (const auto& [name, function] : all.functions)
    sum += static_cast<double>(function->calls.load(std::memory_order_relaxed)) * cost_of(all, name);
  return sum;
}

void reset_counts() {
  auto& all = registry();
  const std::lock_guard guard(all.lock);
  for (auto& [name, function] : all.functions) function->calls.store(0, std::memory_order_relaxed);
}

}  // namespace memxsim

extern "C" int memxsim_unsupported(const char* name) {
  const CUresult refused = memxsim::enter(memxsim::function_named(name), memxsim::Needs::nothing);
  return refused ? refused : CUDA_ERROR_NOT_SUPPORTED;
}
