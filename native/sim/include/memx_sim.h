// Control interface of the simulated CUDA driver (libcuda.so.1).
//
// Everything that a test or memx.sim needs beyond the driver API itself: configuration before cuInit,
// holding streams, fault injection, counts, the race oracle's findings, and what is still allocated.
// Nothing in memx's allocator core uses this header; the core sees only the driver API.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEMXSIM_API __attribute__((visibility("default")))

typedef struct memxsim_config {
  uint64_t device_bytes;     // memory of each device
  uint64_t host_bytes;       // host memory that the driver may pin or map
  uint64_t page_bytes;       // allocation granularity; a power of two, at least 4 KiB
  uint32_t devices;          // number of devices
  uint32_t accounting_only;  // 1: no mappings and no contents, for runs with very many pages
  uint64_t seed;             // for probabilistic fault injection
  uint32_t host_mappable;    // 0: cuMemCreate at a host location reports NOT_SUPPORTED, as older drivers do
  uint32_t driver_version;   // what cuDriverGetVersion says, e.g. 12040; 0: the newest simulated. Functions that
                             // came later are not found by cuGetProcAddress and answer NOT_SUPPORTED
} memxsim_config;

// Returns 0, or a CUresult: INVALID_VALUE for a bad configuration, ALREADY_MAPPED once cuInit has run.
MEMXSIM_API int memxsim_configure(const memxsim_config *config);

// Streams: `stream` is a CUstream, 0/1/2 meaning the special handles. Queued work does not start while the
// stream is held; a host wait that depends on it, through other streams too, releases it. Releasing a stream
// that is not held does nothing.
MEMXSIM_API int memxsim_hold(void *stream);
MEMXSIM_API int memxsim_release(void *stream);

// What one host thread waited for, another is taken to know as well: 0, the default, since the locks between
// them cannot be seen. 1: each thread knows only what it waited for itself; before cuInit only.
MEMXSIM_API int memxsim_set_thread_clocks(int each_thread);

// Makes calls of `function` (its base name, "cuMemMap"; "*": any) fail with `code` (a CUresult):
// the at-th call from now, once (at > 0); every every-th (every > 0); each with `probability`;
// all from the from-th on (from > 0: a driver shutting down). All zero cancels what was set for the function.
MEMXSIM_API int memxsim_fail(const char *function, uint64_t at, uint64_t every, double probability, uint64_t from,
                             int code);

// JSON answers: the number of bytes needed (with the final 0) is returned; nothing is written if `size` is less.
// calls: {"cuMemMap": 12, ...} successful and failed calls alike, base names.
MEMXSIM_API size_t memxsim_calls_json(char *out, size_t size);
// races: [{"kind": "race"|"unmap-under-use"|"outside-lifetime",
//          "first": {"stream", "index", "name", "address", "bytes"}, "second": {...}}]
//   A stream is its cuStreamGetId, the index counts its operations from 1; both are -1 for a call of the host.
//   outside-lifetime: the second uses memory of a pool or a graph that the first, queued before it, freed; its name is
//   "never allocated" where nothing did. The first 1000 are kept, all are counted.
MEMXSIM_API size_t memxsim_races_json(char *out, size_t size);
// usage: {"device_bytes": [..per device..], "host_bytes", "handles", "mappings", "reservations",
//         "streams", "events", "modules", "pinned_bytes"}: what exists now (released handles still mapped count)
MEMXSIM_API size_t memxsim_usage_json(char *out, size_t size);
// costs: {"cuMemMap": 2.0, ...}, microseconds a call, modelled
MEMXSIM_API size_t memxsim_costs_json(char *out, size_t size);
MEMXSIM_API int memxsim_set_cost(const char *function, double us);
// Sum over all calls so far of the table's costs: a model, not a measurement.
MEMXSIM_API double memxsim_modelled_us(void);

// A CPU mapping of simulated memory wherever it is, contiguous, which kernels and copies see and change. Nothing is
// waited for, and no access through it is checked. It is of the pages that are there now: what is remapped later is not
// followed, and what is freed keeps its last contents, given to nobody else, until the view is ended.
// Returns 0, or a CUresult: INVALID_VALUE if not all of the range has memory; NOT_SUPPORTED for registered memory,
// which is the program's own, and without contents (accounting_only); OUT_OF_MEMORY if the system refuses.
MEMXSIM_API int memxsim_view(uint64_t address, uint64_t bytes, void **out);
MEMXSIM_API int memxsim_end_view(void *view);

// Counts a call of something that is no driver function, under its own name.
MEMXSIM_API void memxsim_count(const char *name);

MEMXSIM_API void memxsim_reset_counts(void);  // call counts and modelled time
MEMXSIM_API void memxsim_clear_races(void);
MEMXSIM_API uint64_t memxsim_race_count(void);

#ifdef __cplusplus
}
#endif

// Built-in kernels. A module loaded with cuModuleLoadData from PTX text or from a name list is matched by its
// `.entry NAME`s; names below run, others do nothing and are counted ("kernel:NAME" in the calls).
// Grid and block sizes do not matter to the simulation. Parameters, in order:
//
//   memx_stamp (u64 ptr, u64 bytes, u64 seed, u64 offset)                  writes the pattern
//   memx_verify(u64 ptr, u64 bytes, u64 seed, u64 offset, u64 mismatches)  atomically adds the number of bytes
//                                                                          that differ to the u64 at `mismatches`
//   memx_touch (u64 ptr, u64 bytes, u32 write)                             is mapped and accessible; contents
//                                                                          are neither read nor changed
//   memx_fill  (u64 ptr, u64 bytes, u32 value)                             every byte = value & 255
//   memx_copy  (u64 dst, u64 src, u64 bytes)
//   memx_axpy  (u64 y, u64 x, f32 a, u64 n)                                y[i] += a * x[i], float32
//   memx_gather(u64 table, u64 n, u64 bytes_each, u32 write)               touches the n ranges at table[i]
//
// The pattern: byte b of a buffer, b = offset + (address - ptr), is byte (b & 3), little endian, of the 32-bit word
//   w(k) = (k * 0x9E3779B1 + (uint32)(seed >> 32)) ^ (uint32)seed,   k = b >> 2  (mod 2^32).
