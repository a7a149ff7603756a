// Pages whose contents come from a source of the caller's.
#include <algorithm>
#include <exception>

#include "memx/store.h"

namespace memx {

bool Store::refillable(std::uint64_t page) {
  const Block* block = pool.at(page * config.page_bytes);
  return block && is_refilled(block->key);
}

Store::Refill::Part Store::part_of(const Block* block, std::uint64_t page) {
  const std::uint64_t begin = page * config.page_bytes, end = begin + config.page_bytes;
  const std::uint64_t from = std::max(begin, block->begin), to = std::max(from, std::min(end, block->begin + block->requested));
  return {block, extras_.at(block).source, from - begin, from - block->begin, to - from};
}

Store::Refill Store::refill_of(std::uint64_t page) {
  Refill out{page, {}};
  each_live(page * config.page_bytes, (page + 1) * config.page_bytes, [&](Block* block) {
    if (Refill::Part part = part_of(block, page); part.bytes) out.parts.push_back(std::move(part));
  });
  return out;
}

std::vector<Store::Refill> Store::late_refills(const std::vector<Operand>& operands) {
  std::vector<Refill> late;
  for (const Operand& operand : operands) {
    const Block* block = operand.block;
    if (!block->known) continue;
    for (std::uint64_t page : extras_.at(block).unfilled) {
      if (operand.end <= page * config.page_bytes || operand.begin >= (page + 1) * config.page_bytes) continue;
      auto same = [&](const Refill& one) { return one.page == page && one.parts.front().block == block; };
      if (std::any_of(late.begin(), late.end(), same)) continue;
      if (Refill::Part part = part_of(block, page); part.bytes) late.push_back({page, {std::move(part)}});
    }
  }
  return late;
}

bool Store::refill_late(Lock& lock, const std::vector<Refill>& late, std::vector<Mapping*>& held, Slot slot) {
  if (!lock.past_gate()) {
    let_go(held);
    lock.pass_gate();
    return false;
  }
  if (order.capturing(lock, slot))
    throw Error(ErrorKind::kInvalidState,
                "contents of this use are not on the device, and nothing is copied while its stream is captured: use the buffers "
                "once before the capture");
  // Work of whoever had these bytes before may be queued.
  for (const Refill& one : late) {
    PointSet points = table.mapping_at(one.page)->uses;
    order.prune_complete(points);
    if (points.empty()) continue;
    let_go(held);
    wait(lock, points[0]);
    return false;
  }
  auto set_busy = [&](bool busy) {
    for (const Refill& one : late) table.mapping_at(one.page)->busy = busy;
    if (!busy) changed_.notify_all();
  };
  set_busy(true);
  try {
    refill(lock, late);
  } catch (...) {
    set_busy(false);
    throw;
  }
  set_busy(false);
  note_filled(late);
  return true;
}

void Store::note_filled(const std::vector<Refill>& pages) {
  for (const Refill& page : pages)
    for (const Refill::Part& part : page.parts) {
      refilled_bytes += part.bytes;
      auto found = extras_.find(part.block);
      if (found == extras_.end() || found->second.source != part.source) continue;
      std::vector<std::uint64_t>& unfilled = found->second.unfilled;
      unfilled.erase(std::remove(unfilled.begin(), unfilled.end(), page.page), unfilled.end());
    }
}

// Through a few pinned pages, so that one is filled while another is copied; where the host has no room for them, through
// ordinary memory.
void Store::refill(Lock& lock, const std::vector<Refill>& pages) {
  constexpr std::size_t kStagingPages = 4;
  if (pages.empty()) return;
  const std::uint64_t page_bytes = config.page_bytes;
  std::size_t count = std::min(kStagingPages, pages.size());
  shed_clean(count * page_bytes);
  std::vector<Handle> staging;
  lock.drive([&] {
    while (count && physical.acquire(Tier::kPinned, count, staging) != CUDA_SUCCESS) count /= 2;
  });
  std::vector<std::byte> ordinary(count ? 0 : page_bytes);
  std::vector<std::byte*> buffers;
  for (const Handle& handle : staging) buffers.push_back(reinterpret_cast<std::byte*>(handle.value));
  if (!count) buffers.push_back(ordinary.data());

  Moving moving(*this);
  lock.unlock();
  std::exception_ptr thrown;
  CUresult result = CUDA_SUCCESS;
  auto stream_of = [&](std::size_t buffer) { return buffer % 2 ? in_stream_ : stream_; };
  for (std::size_t i = 0; i < pages.size() && result == CUDA_SUCCESS && !thrown; ++i) {
    const std::size_t buffer = i % buffers.size();
    if (i >= buffers.size()) {
      ContextScope current(device);
      result = MEMX_CALL(device, cuStreamSynchronize, stream_of(buffer));
      if (result != CUDA_SUCCESS) break;
    }
    try {
      for (const Refill::Part& part : pages[i].parts) part.source->fill(buffers[buffer] + part.at, part.offset, part.bytes);
    } catch (...) {
      thrown = std::current_exception();
      break;
    }
    if (pages[i].parts.empty()) continue;
    const std::uint64_t from = pages[i].parts.front().at, to = pages[i].parts.back().at + pages[i].parts.back().bytes;
    ContextScope current(device);
    result = MEMX_CALL(device, cuMemcpyHtoDAsync, table.address(pages[i].page) + from, static_cast<const void*>(buffers[buffer] + from),
                       std::size_t(to - from), stream_of(buffer));
  }
  Call call = Call::cuMemcpyHtoDAsync;
  for (CUstream stream : {stream_, in_stream_}) finish_copies(stream, result, call);
  lock.lock();
  for (const Handle& handle : staging) physical.put(handle);
  if (thrown) std::rethrow_exception(thrown);
  if (result != CUDA_SUCCESS) device.raise(result, call, "filling pages from their source");
}

}  // namespace memx
