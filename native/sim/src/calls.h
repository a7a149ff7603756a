// What happens at the door of every driver function: counting, fault injection, and the refusals of a
// process that has forked or is exiting.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace memxsim {

struct Function {
  explicit Function(const char* base_name);
  const std::string name;
  const int since;  // the driver version that brought it
  std::atomic<uint64_t> calls{0};
  std::atomic<bool> fault_armed{false};
};

// One object a base name, made at first use and never destroyed.
Function& function_named(const char* name);

enum class Needs { nothing, init };

// The code to return at once, or CUDA_SUCCESS to go on.
CUresult enter(Function& function, Needs needs);

void count_named(const std::string& name);  // counts that are no function: "kernel:NAME"

void set_fault_seed(uint64_t seed);
int set_fault(const char* function, uint64_t at, uint64_t every, double probability, uint64_t from, int code);

std::string calls_json();
std::string costs_json();
void set_cost(const char* function, double us);
double modelled_us();
void reset_counts();

// Process-wide states that every call looks at first.
extern std::atomic<bool> g_initialised;
extern std::atomic<bool> g_exiting;
extern std::atomic<bool> g_forked;
extern std::atomic<int> g_version;  // what the driver says that it is
extern constinit thread_local bool t_in_host_function;

}  // namespace memxsim

// First line of a driver function; `name` is its base name. ENTER_ANY is for what works before cuInit.
#define ENTER(name)                                                            \
  static ::memxsim::Function& function_ = ::memxsim::function_named(#name);    \
  if (const CUresult refused_ = ::memxsim::enter(function_, ::memxsim::Needs::init)) return refused_
#define ENTER_ANY(name)                                                        \
  static ::memxsim::Function& function_ = ::memxsim::function_named(#name);    \
  if (const CUresult refused_ = ::memxsim::enter(function_, ::memxsim::Needs::nothing)) return refused_
