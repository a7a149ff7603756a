#include "kernels.h"

#include <atomic>
#include <cstring>
#include <unordered_map>

#include "state.h"
#include "works.h"

namespace memxsim {

namespace {

constexpr uint64_t kMaxGather = 1 << 20;

template <typename T>
T load(const unsigned char* parameters, size_t offset) {
  T value;
  std::memcpy(&value, parameters + offset, sizeof value);
  return value;
}

struct Kernel : Work {
  explicit Kernel(const char* kernel_name) : Work(kernel_name) {}
  bool has_effect() const override { return true; }
  template <typename Body>
  static void for_spans(const Execution& execution, size_t operand, Body&& body) {
    for (size_t i = execution.first[operand]; i < execution.first[operand + 1]; ++i) body(execution.spans[i]);
  }
};

struct StampPattern : Kernel {
  uint64_t seed, offset;
  explicit StampPattern(const unsigned char* p) : Kernel("memx_stamp"), seed(load<uint64_t>(p, 16)), offset(load<uint64_t>(p, 24)) {
    operands.push_back({load<uint64_t>(p, 0), load<uint64_t>(p, 8), AccessKind::write});
    bytes_touched = operands[0].bytes;
  }
  void perform(const Execution& execution) const override {
    uint64_t at = offset;
    for (const Span& span : execution.spans) {
      write_pattern(span.data, span.bytes, seed, at);
      at += span.bytes;
    }
  }
};

struct Verify : Kernel {
  uint64_t seed, offset;
  explicit Verify(const unsigned char* p) : Kernel("memx_verify"), seed(load<uint64_t>(p, 16)), offset(load<uint64_t>(p, 24)) {
    operands.push_back({load<uint64_t>(p, 0), load<uint64_t>(p, 8), AccessKind::read});
    operands.push_back({load<uint64_t>(p, 32), 8, AccessKind::atomic});
    bytes_touched = operands[0].bytes;
  }
  void perform(const Execution& execution) const override {
    uint64_t at = offset, wrong = 0;
    for_spans(execution, 0, [&](const Span& span) {
      wrong += count_mismatches(span.data, span.bytes, seed, at);
      at += span.bytes;
    });
    if (!wrong) return;
    const Span& counter = execution.spans[execution.first[1]];
    std::atomic_ref(*reinterpret_cast<uint64_t*>(counter.data)).fetch_add(wrong);
  }
};

struct Touch : Kernel {
  explicit Touch(const unsigned char* p) : Kernel("memx_touch") {
    operands.push_back({load<uint64_t>(p, 0), load<uint64_t>(p, 8),
                        load<uint32_t>(p, 16) ? AccessKind::write : AccessKind::read});
  }
  bool has_effect() const override { return false; }
};

struct FillBytes : Kernel {
  uint32_t value;
  explicit FillBytes(const unsigned char* p) : Kernel("memx_fill"), value(load<uint32_t>(p, 16)) {
    operands.push_back({load<uint64_t>(p, 0), load<uint64_t>(p, 8), AccessKind::write});
    bytes_touched = operands[0].bytes;
  }
  void perform(const Execution& execution) const override {
    for (const Span& span : execution.spans) fill_bytes(span.data, span.bytes, value, 1);
  }
};

struct CopyBytes : Kernel {
  explicit CopyBytes(const unsigned char* p) : Kernel("memx_copy") {
    const auto bytes = load<uint64_t>(p, 16);
    operands.push_back({load<uint64_t>(p, 0), bytes, AccessKind::write});
    operands.push_back({load<uint64_t>(p, 8), bytes, AccessKind::read});
    bytes_touched = bytes;
  }
  void perform(const Execution& execution) const override {
    for_pieces(execution, 0, 1, [](char* to, const char* from, uint64_t bytes) { std::memmove(to, from, bytes); });
  }
};

struct Axpy : Kernel {
  float a;
  explicit Axpy(const unsigned char* p) : Kernel("memx_axpy"), a(load<float>(p, 16)) {
    const uint64_t bytes = load<uint64_t>(p, 24) * sizeof(float);
    operands.push_back({load<uint64_t>(p, 0), bytes, AccessKind::write});
    operands.push_back({load<uint64_t>(p, 8), bytes, AccessKind::read});
    bytes_touched = bytes;
  }
  void perform(const Execution& execution) const override {
    for_pieces(execution, 0, 1, [this](char* to, const char* from, uint64_t bytes) {
      auto* y = reinterpret_cast<float*>(to);
      const auto* x = reinterpret_cast<const float*>(from);
      for (uint64_t i = 0; i < bytes / sizeof(float); ++i) y[i] += a * x[i];
    });
  }
};

// Its ranges are in memory, so they are known only when it runs. The oracle counts those that the table holds
// as the kernel is queued, if nothing queued before still writes the table.
struct Gather : Kernel {
  uint64_t count, bytes_each;
  AccessKind kind;
  explicit Gather(const unsigned char* p)
      : Kernel("memx_gather"),
        count(load<uint64_t>(p, 8)),
        bytes_each(load<uint64_t>(p, 16)),
        kind(load<uint32_t>(p, 24) ? AccessKind::write : AccessKind::read) {
    operands.push_back({load<uint64_t>(p, 0), count * sizeof(uint64_t), AccessKind::read});
  }
  bool has_effect() const override { return false; }

  static std::vector<uint64_t> table_in(const std::vector<Span>& spans) {
    std::vector<uint64_t> table;
    for (const Span& span : spans) {
      if (!span.data) return {};
      const auto* words = reinterpret_cast<const uint64_t*>(span.data);
      table.insert(table.end(), words, words + span.bytes / sizeof(uint64_t));
    }
    return table;
  }

  bool prepare(Execution& execution) const override {
    if (count > kMaxGather || operands[0].va % sizeof(uint64_t)) return false;
    if (!Work::prepare(execution)) return false;
    const std::vector<uint64_t> table = table_in(execution.spans);
    std::vector<Span> unused;
    for (const uint64_t va : table)
      if (!driver().addresses.resolve(execution.device, va, bytes_each, kind != AccessKind::read, unused)) return false;
    return true;
  }

  void more_operands(std::vector<Operand>& more) const override {
    if (count > kMaxGather || operands[0].va % sizeof(uint64_t)) return;
    Driver& d = driver();
    std::vector<Span> spans;
    uint64_t next = operands[0].va;
    for (Region* region : d.addresses.covering(operands[0].va, operands[0].bytes)) {
      const uint64_t stop = std::min(region->end(), operands[0].va + operands[0].bytes);
      if (d.oracle.pending_write(*region, next - region->va, stop - next)) return;
      char* data = region->phys->data ? region->phys->data + (next - region->va) : nullptr;
      spans.push_back({data, stop - next, region->phys});
      next = stop;
    }
    for (const uint64_t va : table_in(spans)) more.push_back({va, bytes_each, kind});
  }
};

struct Nothing : Work {
  explicit Nothing(const char* kernel_name) : Work(kernel_name) {}
};

template <typename T>
WorkRef make(const unsigned char* parameters) {
  return std::make_shared<T>(parameters);
}

}  // namespace

const KernelKind* built_in_kernel(const std::string& name) {
  static const auto* kinds = new std::unordered_map<std::string, KernelKind>{
      {"memx_stamp", {"memx_stamp", {{0, 8}, {8, 8}, {16, 8}, {24, 8}}, make<StampPattern>}},
      {"memx_verify", {"memx_verify", {{0, 8}, {8, 8}, {16, 8}, {24, 8}, {32, 8}}, make<Verify>}},
      {"memx_touch", {"memx_touch", {{0, 8}, {8, 8}, {16, 4}}, make<Touch>}},
      {"memx_fill", {"memx_fill", {{0, 8}, {8, 8}, {16, 4}}, make<FillBytes>}},
      {"memx_copy", {"memx_copy", {{0, 8}, {8, 8}, {16, 8}}, make<CopyBytes>}},
      {"memx_axpy", {"memx_axpy", {{0, 8}, {8, 8}, {16, 4}, {24, 8}}, make<Axpy>}},
      {"memx_gather", {"memx_gather", {{0, 8}, {8, 8}, {16, 8}, {24, 4}}, make<Gather>}},
  };
  const auto found = kinds->find(name);
  return found == kinds->end() ? nullptr : &found->second;
}

WorkRef unknown_kernel(const char* name) { return std::make_shared<Nothing>(name); }

}  // namespace memxsim
