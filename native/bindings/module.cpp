// The native module memx._native: Resource and the driver's probes. Every call that may wait lets go of the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdio>

#include "memx/probe.h"
#include "memx/resource.h"
#include "convert.h"

namespace nb = nanobind;
using namespace memx;

namespace {

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

template <class Get>
nb::list events_of(Get get) {
  static const char* const kNames[] = {"alloc", "free", "record_stream", "wait", "oom", "mark"};
  std::deque<TraceEvent> events;
  {
    GilRelease release;
    events = get();
  }
  nb::list out;
  for (const TraceEvent& e : events)
    out.append(nb::make_tuple(kNames[e.kind], e.address, e.bytes, e.stream, e.other, e.time_us));
  return out;
}

// As rows of six 64-bit words, which a recorder passes on without making Python objects of them.
nb::bytes drain_packed(Resource& from) {
  std::deque<TraceEvent> events;
  {
    GilRelease release;
    events = from.drain_events();
  }
  std::vector<std::uint64_t> words;
  words.reserve(6 * events.size());
  for (const TraceEvent& e : events)
    words.insert(words.end(), {e.kind, e.address, e.bytes, e.stream, e.other, e.time_us});
  return nb::bytes(words.data(), 8 * words.size());
}

nb::dict flows_of(const Statistics& s) {
  nb::dict out;
  auto flow = [&](const std::string& name, const Flow& f) {
    out[name.c_str()] = nb::make_tuple(f.current, f.peak, f.gained, f.lost);
  };
  auto demand = [&](const char* pool, const Demand& d) {
    flow(std::string("blocks.") + pool, d.blocks);
    flow(std::string("requested_bytes.") + pool, d.requested);
    flow(std::string("allocated_bytes.") + pool, d.allocated);
  };
  demand("all", s.all);
  demand("small", s.small);
  demand("large", s.large);
  flow("reserved_bytes", s.reserved);
  flow("segments", s.segments);
  out["out_of_memory_errors"] = s.out_of_memory_errors;
  return out;
}

nb::dict as_dict(const Statistics& s) {
  nb::dict out;
  auto gauge = [&](const std::string& name, const Gauge& g) {
    out[(name + ".current").c_str()] = g.current;
    out[(name + ".peak").c_str()] = g.peak;
  };
  gauge("requested_bytes", s.all.requested);
  gauge("allocated_bytes", s.all.allocated);
  gauge("active_bytes", s.active);
  gauge("inactive_bytes", s.inactive);
  gauge("reserved_bytes", s.reserved);
  gauge("host_bytes", s.host);
  out["migrated_in_bytes"] = s.migrated_in_bytes;
  out["migrated_out_bytes"] = s.migrated_out_bytes;
  out["faulted_bytes"] = s.faulted_bytes;
  out["refilled_bytes"] = s.refilled_bytes;
  out["prefetched_bytes"] = s.prefetched_bytes;
  out["prefetched_used_bytes"] = s.prefetched_used_bytes;
  out["allocations"] = s.all.blocks.gained;
  out["frees"] = s.all.blocks.lost;
  out["reuse_hits"] = s.reuse_hits;
  out["search_probes"] = s.search_probes;
  nb::dict calls;
  for (const auto& [name, count] : s.driver_calls) calls[name.c_str()] = count;
  out["driver_calls"] = calls;
  return out;
}

// One block, freed when the last reference to this goes: for owners that are destroyed at any moment, with an error under
// way too, where no Python code may run.
class Allocation {
 public:
  Allocation(Resource& from, std::uint64_t address) : from_(from), address_(address) {}
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() {
    GilRelease release;
    try {
      from_.free(address_);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "memx: freeing 0x%llx failed: %s\n", static_cast<unsigned long long>(address_), error.what());
    }
  }
  std::uint64_t address() const { return address_; }

 private:
  Resource& from_;
  std::uint64_t address_;
};

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
  bind_torch(m);
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
              bool oversubscribe, nb::handle page, bool framework, const std::string& eviction, nb::handle low_water,
              nb::handle look_ahead) {
             Config config =
                 as_config(device, device_limit, host_limit, reuse, lazy, oversubscribe, page, framework, eviction);
             config.low_water = as_size(low_water, "low_water");
             config.look_ahead = as_size(look_ahead, "look_ahead");
             GilRelease release;
             new (self) Resource(config);
           },
           nb::arg("device"), nb::arg("device_limit"), nb::arg("host_limit"), nb::arg("reuse") = "default",
           nb::arg("lazy") = false, nb::arg("oversubscribe") = true, nb::arg("page") = 0,
           nb::arg("framework") = false, nb::arg("eviction") = "cost", nb::arg("low_water") = 0, nb::arg("look_ahead") = 0)
      .def("allocate",
           [](Resource& self, nb::handle nbytes, std::uint64_t stream, nb::handle align, const std::string& placement,
              std::uint32_t tag, nb::object refill, std::int32_t priority) {
             const std::uint64_t bytes = as_size(nbytes, "a size"), alignment = as_size(align, "an alignment");
             const Placement place = as_placement(placement);
             Extra extra;
             if (!refill.is_none()) extra.source = as_source(std::move(refill), bytes);
             extra.priority = priority;
             GilRelease release;
             return self.allocate(bytes, as_stream(stream), alignment, place, tag, extra.source || priority ? &extra : nullptr);
           },
           nb::arg("nbytes"), nb::arg("stream") = 0, nb::arg("align") = 0, nb::arg("placement") = "prefer_device",
           nb::arg("tag") = 0, nb::arg("refill") = nb::none(), nb::arg("priority") = 0)
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
      .def("use_plans",
           [](Resource& self, const std::vector<std::pair<std::vector<std::tuple<std::uint64_t, std::uint64_t, std::int64_t>>,
                                                          std::uint64_t>>& given) {
             std::vector<Plan> plans;
             for (const auto& [allocations, repeat_from] : given) {
               Plan& plan = plans.emplace_back();
               plan.repeat_from = repeat_from;
               for (const auto& [bytes, offset, stream] : allocations) plan.allocations.push_back({bytes, offset, stream});
             }
             self.use_plans(std::move(plans));
           },
           nb::arg("plans"), NoGil())
      .def("begin_step", &Resource::begin_step, nb::arg("plan") = nb::none(), NoGil())
      .def("stop_plans", &Resource::stop_plans, NoGil())
      .def("plan_statistics",
           [](Resource& self) {
             Resource::PlanStatistics statistics;
             {
               GilRelease release;
               statistics = self.plan_statistics();
             }
             nb::dict out;
             out["served"] = statistics.served;
             out["departed"] = statistics.departed;
             out["blocked"] = statistics.blocked;
             out["arena_bytes"] = statistics.arena_bytes;
             return out;
           })
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
      .def("expect",
           [](Resource& self, const std::vector<std::tuple<std::vector<std::pair<std::uint64_t, bool>>, bool, bool>>& given) {
             std::vector<Expected> allocations;
             allocations.reserve(given.size());
             for (const auto& [uses, kept, on_host] : given) {
               Expected& expected = allocations.emplace_back();
               for (const auto& [number, overwrites] : uses) expected.uses.push_back({number, overwrites});
               expected.kept = kept;
               expected.on_host = on_host;
             }
             self.expect(std::move(allocations));
           },
           nb::arg("allocations"), NoGil())
      .def("thrashing",
           [](Resource& self) {
             Thrashing lately;
             {
               GilRelease release;
               lately = self.thrashing();
             }
             return nb::make_tuple(lately.uses, lately.used_bytes, lately.moved_bytes, lately.working_set_bytes);
           })
      .def("residency",
           [](Resource& self, std::uint64_t address) {
             Residency now;
             {
               GilRelease release;
               now = self.residency(address);
             }
             return nb::make_tuple(now.device, now.host, now.moving, now.unbacked);
           },
           nb::arg("address"))
      .def("generation", &Resource::generation, nb::arg("address"), NoGil())
      .def("listen",
           [](Resource& self, nb::object listener) {
             Resource::Listener made = as_listener(std::move(listener));
             GilRelease release;
             self.listen(std::move(made));
           },
           nb::arg("listener").none())
      .def("prefetch", [](Resource& self, std::uint64_t a, std::uint64_t s) { return self.prefetch(a, as_stream(s)); },
           nb::arg("address"), nb::arg("stream"), NoGil())
      .def("evict", &Resource::evict, nb::arg("address"), NoGil())
      .def("pin", &Resource::pin, nb::arg("address"), NoGil())
      .def("unpin", &Resource::unpin, nb::arg("address"), NoGil())
      .def("rebalance", &Resource::rebalance, NoGil())
      .def("tag_id", &Resource::tag_id, nb::arg("name"), NoGil())
      .def("tag_name", &Resource::tag_name, nb::arg("tag"), NoGil())
      .def("limit_host",
           [](Resource& self, std::uint32_t tag, nb::handle limit) {
             const std::uint64_t bytes = limit.is_none() ? kNever : as_size(limit, "a limit");
             GilRelease release;
             self.limit_host(tag, bytes);
           },
           nb::arg("tag"), nb::arg("limit").none())
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
      .def("is_lazy", &Resource::is_lazy)
      .def("copy_stream", [](Resource& self) { return reinterpret_cast<std::uint64_t>(self.copy_stream()); })
      .def("copy_in_stream", [](Resource& self) { return reinterpret_cast<std::uint64_t>(self.copy_in_stream()); })
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
      .def("flows",
           [](Resource& self) {
             Statistics statistics;
             {
               GilRelease release;
               statistics = self.statistics();
             }
             return flows_of(statistics);
           })
      .def("blocks",
           [](Resource& self) {
             static const char* const kStates[] = {"allocated", "pending", "free"};
             std::vector<BlockInfo> blocks;
             {
               GilRelease release;
               blocks = self.blocks();
             }
             nb::list out;
             for (const BlockInfo& b : blocks)
               out.append(nb::make_tuple(b.address, b.bytes, b.requested, kStates[b.state], name_of(b.place),
                                         b.tag, b.stream));
             return out;
           })
      .def("extent_of", &Resource::extent_of, nb::arg("address"), NoGil())
      .def("covers", &Resource::covers, nb::arg("address"))
      .def("device_limit", &Resource::device_limit, NoGil())
      .def("set_device_limit",
           [](Resource& self, nb::handle limit) {
             const std::uint64_t bytes = as_size(limit, "device_limit");
             GilRelease release;
             self.set_device_limit(bytes);
           },
           nb::arg("limit"))
      .def("can_be_reached_from", &Resource::can_be_reached_from, nb::arg("device"), NoGil())
      .def("enable_peer", &Resource::enable_peer, nb::arg("device"), NoGil())
      .def("reset_accumulated_statistics", &Resource::reset_accumulated_statistics, NoGil())
      .def("reset_peak_statistics", &Resource::reset_peak_statistics, NoGil())
      .def("check", &Resource::check, NoGil())
      .def("record_events", &Resource::record_events, nb::arg("on"), nb::arg("most") = 0, NoGil())
      .def("drain_events", [](Resource& self) { return events_of([&] { return self.drain_events(); }); })
      .def("drain_packed", &drain_packed)
      .def("mark", &Resource::mark, nb::arg("number"), NoGil())
      .def("recorded_events", [](Resource& self) { return events_of([&] { return self.recorded_events(); }); })
      .def("free_blocks",
           [](Resource& self) {
             FreeBlocks count;
             {
               GilRelease release;
               count = self.free_blocks();
             }
             return nb::make_tuple(count.inactive, count.pending);
           })
      .def("close", &Resource::close, NoGil());

  nb::class_<Allocation>(m, "Allocation")
      .def("__init__",
           [](Allocation* self, Resource& from, nb::handle nbytes, std::uint64_t stream) {
             const std::uint64_t bytes = as_size(nbytes, "a size");
             GilRelease release;
             new (self) Allocation(from, from.allocate(bytes, as_stream(stream), 0, Placement::kPreferDevice, 0));
           },
           nb::arg("resource"), nb::arg("nbytes"), nb::arg("stream") = 0, nb::keep_alive<1, 2>())
      .def_prop_ro("address", &Allocation::address);
}
