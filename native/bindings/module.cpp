// The native module memx._native: Resource and the driver's probes. Every call that may wait lets go of the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <array>

#include "memx/probe.h"
#include "memx/resource.h"

namespace nb = nanobind;
using namespace memx;

namespace {

// Lets go of the GIL for a scope. A thread that wants it back when the interpreter is already going is ended by CPython
// (before 3.14) from inside, which no frame above survives: such a thread stays here until the process is gone.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

using NoGil = nb::call_guard<GilRelease>;

CUstream as_stream(std::uint64_t handle) { return reinterpret_cast<CUstream>(handle); }

// Any Python integer: one that no size can be is refused as a value, not as a type.
std::uint64_t as_size(nb::handle number, const char* what) {
  if (!PyLong_Check(number.ptr())) throw nb::type_error((std::string(what) + " must be an integer").c_str());
  int overflow = 0;
  long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow > 0) return ~0ull;
  if (overflow < 0 || value < 0)
    throw Error(ErrorKind::kInvalidValue, std::string(what) + " cannot be negative: " + nb::cast<std::string>(nb::str(number)));
  return static_cast<std::uint64_t>(value);
}

ReuseMode as_mode(const std::string& name) {
  if (name == "stream") return ReuseMode::kStream;
  if (name == "default") return ReuseMode::kDefault;
  if (name == "mutual") return ReuseMode::kMutual;
  throw Error(ErrorKind::kInvalidValue, "reuse mode '" + name + "' is unknown: it is 'stream', 'default' or 'mutual'");
}

void translate(const Error& error) {
  nb::object errors = nb::module_::import_("memx.errors");
  const char* type = "DriverError";
  if (error.kind == ErrorKind::kOutOfMemory) type = "OutOfMemoryError";
  if (error.kind == ErrorKind::kInvalidValue) type = "InvalidValueError";
  if (error.kind == ErrorKind::kInvalidState) type = "InvalidStateError";
  nb::object kind = errors.attr(type);
  nb::object value;
  if (error.kind == ErrorKind::kDriver) {
    const char* name = "";
    if (error.code != CUDA_SUCCESS) driver().cuGetErrorName(error.code, &name);
    value = kind(error.what(), static_cast<int>(error.code), name, error.call);
  } else {
    value = kind(error.what());
  }
  PyErr_SetObject(kind.ptr(), value.ptr());
}

nb::dict as_dict(const Statistics& s) {
  nb::dict out;
  auto gauge = [&](const std::string& name, const Gauge& g) {
    out[(name + ".current").c_str()] = g.current;
    out[(name + ".peak").c_str()] = g.peak;
  };
  gauge("requested_bytes", s.requested);
  gauge("allocated_bytes", s.allocated);
  gauge("active_bytes", s.active);
  gauge("inactive_bytes", s.inactive);
  gauge("reserved_bytes", s.reserved);
  gauge("host_bytes", s.host);
  out["migrated_in_bytes"] = s.migrated_in_bytes;
  out["migrated_out_bytes"] = s.migrated_out_bytes;
  out["allocations"] = s.allocations;
  out["frees"] = s.frees;
  out["reuse_hits"] = s.reuse_hits;
  nb::dict calls;
  for (const auto& [name, count] : s.driver_calls) calls[name.c_str()] = count;
  out["driver_calls"] = calls;
  return out;
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // buffers may be alive at exit, and exit is silent
  nb::register_exception_translator(
      [](const std::exception_ptr& pointer, void*) {
        try {
          std::rethrow_exception(pointer);
        } catch (const Error& error) {
          translate(error);
        }
      });

  m.def("driver_loaded", &driver_loaded);
  m.def("driver_version", [] { return driver().version; });
  m.def("probe", [](int device) {
    Probe p;
    {
      GilRelease release;
      p = probe(device);
    }
    nb::dict out;
    out["driver_version"] = p.driver_version;
    out["total_bytes"] = p.total_bytes;
    out["page_bytes"] = p.page_bytes;
    out["virtual_memory"] = p.virtual_memory;
    out["host_mapping"] = p.host_mapping;
    out["context_events"] = p.context_events;
    out["failure"] = p.failure;
    return out;
  }, nb::arg("device"));

  nb::class_<Resource>(m, "Resource")
      .def("__init__",
           [](Resource* self, int device, nb::handle device_limit, nb::handle host_limit, const std::string& reuse, bool lazy,
              bool oversubscribe, nb::handle page, bool framework) {
             Config config;
             config.device = device;
             config.device_limit = as_size(device_limit, "device_limit");
             config.host_limit = as_size(host_limit, "host_limit");
             config.page_bytes = as_size(page, "page");
             config.reuse = as_mode(reuse);
             config.lazy = lazy;
             config.oversubscribe = oversubscribe;
             config.framework = framework;
             GilRelease release;
             new (self) Resource(config);
           },
           nb::arg("device"), nb::arg("device_limit"), nb::arg("host_limit"), nb::arg("reuse") = "default",
           nb::arg("lazy") = false, nb::arg("oversubscribe") = true, nb::arg("page") = 0,
           nb::arg("framework") = false)
      .def("allocate",
           [](Resource& self, nb::handle nbytes, std::uint64_t stream, nb::handle align, bool host_ok, std::uint32_t tag) {
             const std::uint64_t bytes = as_size(nbytes, "a size"), alignment = as_size(align, "an alignment");
             GilRelease release;
             return self.allocate(bytes, as_stream(stream), alignment, host_ok, tag);
           },
           nb::arg("nbytes"), nb::arg("stream") = 0, nb::arg("align") = 0, nb::arg("host_ok") = true, nb::arg("tag") = 0)
      .def("free",
           [](Resource& self, std::uint64_t address, std::optional<std::uint64_t> stream) {
             if (stream)
               self.free(address, as_stream(*stream));
             else
               self.free(address);
           },
           nb::arg("address"), nb::arg("stream") = nb::none(), NoGil())
      .def("record_stream", [](Resource& self, std::uint64_t a, std::uint64_t s) { self.record_stream(a, as_stream(s)); },
           nb::arg("address"), nb::arg("stream"), NoGil())
      .def("note_wait", [](Resource& self, std::uint64_t s, std::uint64_t on) { self.note_wait(as_stream(s), as_stream(on)); },
           nb::arg("stream"), nb::arg("on"), NoGil())
      .def("exclude_stream", [](Resource& self, std::uint64_t s) { self.exclude_stream(as_stream(s)); }, nb::arg("stream"), NoGil())
      .def("announce_capture", &Resource::announce_capture, nb::arg("begin"), NoGil())
      .def("private_tag", &Resource::private_tag, nb::arg("tag"), NoGil())
      .def("retire_tag", &Resource::retire_tag, nb::arg("tag"), NoGil())
      .def("begin_use",
           [](Resource& self, const std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, unsigned>>& operands,
              std::uint64_t stream) {
             std::vector<Resource::Use> uses;
             uses.reserve(operands.size());
             for (const auto& [address, offset, bytes, mode] : operands) uses.push_back({address, offset, bytes, mode});
             return self.begin_use(uses, as_stream(stream));
           },
           nb::arg("operands"), nb::arg("stream"), NoGil())
      .def("end_use", &Resource::end_use, nb::arg("token"), NoGil())
      .def("prefetch", [](Resource& self, std::uint64_t a, std::uint64_t s) { return self.prefetch(a, as_stream(s)); },
           nb::arg("address"), nb::arg("stream"), NoGil())
      .def("evict", &Resource::evict, nb::arg("address"), NoGil())
      .def("pin", &Resource::pin, nb::arg("address"), NoGil())
      .def("unpin", &Resource::unpin, nb::arg("address"), NoGil())
      .def("rebalance", &Resource::rebalance, NoGil())
      .def("tag_id", &Resource::tag_id, nb::arg("name"), NoGil())
      .def("tag_name", &Resource::tag_name, nb::arg("tag"), NoGil())
      .def("pause", &Resource::pause, nb::arg("tag"), nb::arg("keep") = true, NoGil())
      .def("resume", &Resource::resume, nb::arg("tag"), NoGil())
      .def("trim", [](Resource& self, nb::handle keep) {
             const std::uint64_t keep_bytes = as_size(keep, "keep_bytes");
             GilRelease release;
             return self.trim(keep_bytes);
           },
           nb::arg("keep_bytes") = 0)
      .def("read",
           [](Resource& self, std::uint64_t address, std::uint64_t offset, nb::ndarray<nb::device::cpu, nb::c_contig> into) {
             void* data = into.data();
             const std::size_t bytes = into.nbytes();
             GilRelease release;
             self.read(address, offset, data, bytes);
           },
           nb::arg("address"), nb::arg("offset"), nb::arg("into"))
      .def("size_of", &Resource::size_of, nb::arg("address"), NoGil())
      .def("page_bytes", &Resource::page_bytes)
      .def("copy_stream", [](Resource& self) { return reinterpret_cast<std::uint64_t>(self.copy_stream()); })
      .def("host_mappable", &Resource::host_mappable)
      .def("statistics",
           [](Resource& self) {
             Statistics statistics;
             {
               GilRelease release;
               statistics = self.statistics();
             }
             return as_dict(statistics);
           })
      .def("reset_peak_statistics", &Resource::reset_peak_statistics, NoGil())
      .def("check", &Resource::check, NoGil())
      .def("record_events", &Resource::record_events, nb::arg("on"), NoGil())
      .def("drain_events",
           [](Resource& self) {
             static const char* const kNames[] = {"alloc", "free", "record_stream", "wait"};
             std::vector<TraceEvent> events;
             {
               GilRelease release;
               events = self.drain_events();
             }
             nb::list out;
             for (const TraceEvent& e : events)
               out.append(nb::make_tuple(kNames[e.kind], e.address, e.bytes, e.stream, e.other));
           return out;
           })
      .def("close", &Resource::close, NoGil());
}
