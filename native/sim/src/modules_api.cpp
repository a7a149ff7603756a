// Modules, libraries, functions, and launching them.
#include <cctype>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <unordered_set>

#include "capture.h"
#include "context.h"
#include "kernels.h"
#include "works.h"
#include "younger.h"

using namespace memxsim;

namespace {

struct Code;

struct Entry {
  std::string name;
  const KernelKind* kind = nullptr;  // null: does nothing
  Code* code = nullptr;
  Function* counter = nullptr;
};

// A loaded image. A module and a library are the same thing here, and so are a function and a kernel.
struct Code {
  bool any_name = false;  // a binary: what it holds is not looked into
  std::map<std::string, std::unique_ptr<Entry>> entries;
};

struct Loaded {
  std::unordered_set<const void*> codes, entries;
  std::vector<std::unique_ptr<Code>> gone;  // queued work still names their kernels
};

Loaded& loaded() {
  static auto* instance = new Loaded;
  return *instance;
}

constexpr uint32_t kFatbinWrapper = 0x466243b1, kFatbin = 0xba55ed50;

bool is_binary(const void* image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, 1);
  if (magic == 0x7f) return std::memcmp(image, "\177ELF", 4) == 0;
  if (magic != 0xb1 && magic != 0x50) return false;
  std::memcpy(&magic, image, sizeof magic);
  return magic == kFatbinWrapper || magic == kFatbin;
}

bool name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

// The entries of PTX text; or, where it has none, every word of a plain list of names.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  const std::string directive = ".entry";
  for (size_t at = text.find(directive); at != std::string::npos; at = text.find(directive, at)) {
    at += directive.size();
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
    const size_t start = at;
    while (at < text.size() && name_character(text[at])) ++at;
    if (at > start) names.push_back(text.substr(start, at - start));
  }
  if (!names.empty() || text.find(".version") != std::string::npos) return names;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    while (at < text.size() && name_character(text[at])) ++at;
    if (at > start) names.push_back(text.substr(start, at - start));
    while (at < text.size() && !name_character(text[at])) ++at;
  }
  return names;
}

Entry* add_entry(Code& code, const std::string& name) {
  auto& slot = code.entries[name];
  if (!slot) {
    slot = std::make_unique<Entry>();
    slot->name = name;
    slot->kind = built_in_kernel(name);
    slot->code = &code;
    slot->counter = &function_named(("kernel:" + name).c_str());
    loaded().entries.insert(slot.get());
  }
  return slot.get();
}

CUresult load(void** out, const void* image) {
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  auto code = std::make_unique<Code>();
  code->any_name = is_binary(image);
  const Lock lock(driver().lock);
  if (!code->any_name) {
    const auto names = names_in(static_cast<const char*>(image));
    if (names.empty()) return CUDA_ERROR_INVALID_IMAGE;
    for (const std::string& name : names) add_entry(*code, name);
  }
  ++driver().modules;
  loaded().codes.insert(code.get());
  *out = code.release();
  return CUDA_SUCCESS;
}

CUresult load_file(void** out, const char* path) {
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::stringstream text;
  text << file.rdbuf();
  return load(out, text.str().c_str());
}

Code* code_of(const void* handle) {
  return loaded().codes.count(handle) ? static_cast<Code*>(const_cast<void*>(handle)) : nullptr;
}

Entry* entry_of(const void* handle) {
  return loaded().entries.count(handle) ? static_cast<Entry*>(const_cast<void*>(handle)) : nullptr;
}

CUresult unload(void* handle) {
  const Lock lock(driver().lock);
  Code* code = code_of(handle);
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  loaded().codes.erase(handle);
  for (const auto& [name, entry] : code->entries) loaded().entries.erase(entry.get());
  loaded().gone.emplace_back(code);
  --driver().modules;
  return CUDA_SUCCESS;
}

CUresult find_entry(void** out, const void* handle, const char* name) {
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  Code* code = code_of(handle);
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = code->entries.find(name);
  if (found == code->entries.end() && !code->any_name) return CUDA_ERROR_NOT_FOUND;
  *out = found == code->entries.end() ? add_entry(*code, name) : found->second.get();
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, const unsigned (&grid)[3], const unsigned (&block)[3], CUstream stream,
                void** parameters, void** extra) {
  Driver& d = driver();
  const Lock lock(d.lock);
  USE_CONTEXT(context);
  Entry* entry = entry_of(function);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  for (int i = 0; i < 3; ++i)
    if (!grid[i] || !block[i]) return CUDA_ERROR_INVALID_VALUE;
  if (uint64_t{block[0]} * block[1] * block[2] > 1024) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  if (!queue) return error;
  if (queue->context != context) return CUDA_ERROR_INVALID_HANDLE;
  if (!entry->kind) {
    entry->counter->calls.fetch_add(1, std::memory_order_relaxed);
    return submit_locked(*queue, unknown_kernel(entry->name.c_str()));
  }
  alignas(16) unsigned char buffer[64] = {};
  const KernelKind& kind = *entry->kind;
  const size_t needed = kind.parameters.back().offset + kind.parameters.back().bytes;
  if (parameters) {
    for (size_t i = 0; i < kind.parameters.size(); ++i)
      std::memcpy(buffer + kind.parameters[i].offset, parameters[i], kind.parameters[i].bytes);
  } else {
    const void* given = nullptr;
    size_t given_bytes = 0;
    for (size_t i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) given = extra[i + 1];
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) given_bytes = *static_cast<const size_t*>(extra[i + 1]);
    }
    if (!given || given_bytes < needed) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(buffer, given, needed);
  }
  return submit_locked(*queue, kind.make(buffer));
}

CUresult function_attribute(int* value, CUfunction_attribute name, const void* handle) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  if (!entry_of(handle)) return CUDA_ERROR_INVALID_HANDLE;
  switch (name) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = 70; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = 49152; break;
    default: *value = 0; break;
  }
  return CUDA_SUCCESS;
}

CUresult parameter_info(const void* handle, size_t index, size_t* offset, size_t* size) {
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Entry* entry = entry_of(handle);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  if (!entry->kind || index >= entry->kind->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = entry->kind->parameters[index].offset;
  if (size) *size = entry->kind->parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult parameter_count(const void* handle, size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Entry* entry = entry_of(handle);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  *count = entry->kind ? entry->kind->parameters.size() : 0;
  return CUDA_SUCCESS;
}

}  // namespace

#define OUT(handle) reinterpret_cast<void**>(handle)

extern "C" {

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* path) {
  ENTER(cuModuleLoad);
  return load_file(OUT(module), path);
}
CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  ENTER(cuModuleLoadData);
  return load(OUT(module), image);
}
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
  ENTER(cuModuleLoadDataEx);
  return load(OUT(module), image);
}
CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  ENTER(cuModuleLoadFatBinary);
  return load(OUT(module), image);
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  ENTER(cuModuleUnload);
  return unload(module);
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  ENTER(cuModuleGetFunction);
  return find_entry(OUT(function), module, name);
}
CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  ENTER(cuModuleGetLoadingMode);
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned int,
                                   CUlibraryOption*, void**, unsigned int) {
  ENTER(cuLibraryLoadData);
  return load(OUT(library), image);
}
CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**, unsigned int,
                                       CUlibraryOption*, void**, unsigned int) {
  ENTER(cuLibraryLoadFromFile);
  return load_file(OUT(library), path);
}
CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  ENTER(cuLibraryUnload);
  return unload(library);
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  ENTER(cuLibraryGetKernel);
  return find_entry(OUT(kernel), library, name);
}
CUresult CUDAAPI cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  ENTER(cuLibraryGetModule);
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  if (!code_of(library)) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
  ENTER(cuLibraryGetKernelCount);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Code* code = code_of(library);
  if (!code) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(code->entries.size());
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  ENTER(cuKernelGetFunction);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  if (!entry_of(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  ENTER(cuKernelGetLibrary);
  if (!library) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Entry* entry = entry_of(kernel);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  *library = reinterpret_cast<CUlibrary>(entry->code);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel kernel) {
  ENTER(cuKernelGetName);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Entry* entry = entry_of(kernel);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  *name = entry->name.c_str();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetAttribute(int* value, CUfunction_attribute name, CUkernel kernel, CUdevice) {
  ENTER(cuKernelGetAttribute);
  return function_attribute(value, name, kernel);
}
CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) {
  ENTER(cuKernelSetAttribute);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  ENTER(cuKernelGetParamInfo);
  return parameter_info(kernel, index, offset, size);
}
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  ENTER(cuFuncGetParamInfo);
  return parameter_info(function, index, offset, size);
}
CUresult CUDAAPI cuKernelGetParamCount(CUkernel kernel, size_t* count) {
  ENTER(cuKernelGetParamCount);
  return parameter_count(kernel, count);
}
CUresult CUDAAPI cuFuncGetParamCount(CUfunction function, size_t* count) {
  ENTER(cuFuncGetParamCount);
  return parameter_count(function, count);
}
CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute name, CUfunction function) {
  ENTER(cuFuncGetAttribute);
  return function_attribute(value, name, function);
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  ENTER(cuFuncSetAttribute);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  ENTER(cuFuncSetCacheConfig);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetModule(CUmodule* module, CUfunction function) {
  ENTER(cuFuncGetModule);
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Entry* entry = entry_of(function);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(entry->code);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction function) {
  ENTER(cuFuncGetName);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver().lock);
  const Entry* entry = entry_of(function);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  *name = entry->name.c_str();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction) {
  ENTER(cuFuncIsLoaded);
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncLoad(CUfunction) {
  ENTER(cuFuncLoad);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int block_size, size_t) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  if (!blocks || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = std::max(1, std::min(32, 2048 / block_size));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction, int block_size, size_t,
                                                                      unsigned int) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  if (!blocks || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = std::max(1, std::min(32, 2048 / block_size));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction, CUoccupancyB2DSize, size_t, int) {
  ENTER(cuOccupancyMaxPotentialBlockSize);
  if (!grid || !block) return CUDA_ERROR_INVALID_VALUE;
  *grid = 264;
  *block = 1024;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                                unsigned int by, unsigned int bz, unsigned int, CUstream stream, void** parameters,
                                void** extra) {
  ENTER(cuLaunchKernel);
  return launch(function, {gx, gy, gz}, {bx, by, bz}, stream, parameters, extra);
}
CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                                           unsigned int bx, unsigned int by, unsigned int bz, unsigned int,
                                           CUstream stream, void** parameters) {
  ENTER(cuLaunchCooperativeKernel);
  return launch(function, {gx, gy, gz}, {bx, by, bz}, stream, parameters, nullptr);
}
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  ENTER(cuLaunchKernelEx);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  return launch(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ}, config->hStream, parameters, extra);
}

}  // extern "C"
