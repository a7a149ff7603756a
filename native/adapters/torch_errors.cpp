#include "torch_errors.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <typeinfo>

namespace memx::torch {
namespace {

// c10::SourceLocation, as it is passed by value.
struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

using Construct = void (*)(void* self, SourceLocation, std::string);
using Destroy = void (*)(void*);

struct Symbols {
  Construct construct = nullptr;  // of c10::Error, whose data c10::OutOfMemoryError has and no more
  void** vtable = nullptr;
  std::type_info* type = nullptr;
  bool complete = true;

  Symbols() {
    void* c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
    if (!c10) {
      complete = false;
      return;
    }
    auto find = [&](const char* name) {
      void* symbol = dlsym(c10, name);
      if (!symbol) complete = false;
      return symbol;
    };
    construct = reinterpret_cast<Construct>(
        find("_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"));
    vtable = static_cast<void**>(find("_ZTVN3c1016OutOfMemoryErrorE"));
    type = static_cast<std::type_info*>(find("_ZTIN3c1016OutOfMemoryErrorE"));
  }
};

const Symbols& symbols() {
  static const Symbols found;
  return found;
}

// An Itanium vtable: offset to top, type information, then the functions; of a class derived from std::exception the first
// two are its destructors.
constexpr int kFunctions = 2;
constexpr std::size_t kRoom = 1024;  // for the object; c10::Error has about 200 bytes

}  // namespace

void throw_out_of_memory(const std::string& message) {
  const Symbols& s = symbols();
  if (!s.complete) throw std::runtime_error(message);
  void* object = abi::__cxa_allocate_exception(kRoom);
  try {
    s.construct(object, {"malloc", "memx", 0}, message);
  } catch (...) {
    abi::__cxa_free_exception(object);
    throw;
  }
  *static_cast<void***>(object) = s.vtable + kFunctions;
  auto destroy = reinterpret_cast<Destroy>(s.vtable[kFunctions]);
  abi::__cxa_throw(object, s.type, destroy);
}

}  // namespace memx::torch
