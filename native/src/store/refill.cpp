// Pages whose contents come from a source of the caller's.
#include <algorithm>
#include <exception>

#include "memx/store.h"

namespace memx {

bool Store::refillable(std::uint64_t page) {
  const Block* block = pool.at(page * config.page_bytes);
  return block && is_refilled(block->key);
}

Store::Refill Store::refill_of(std::uint64_t page) {
  Refill out{page, {}};
  const std::uint64_t begin = page * config.page_bytes, end = begin + config.page_bytes;
  each_live(begin, end, [&](Block* block) {
    const std::uint64_t from = std::max(begin, block->begin), to = std::min(end, block->begin + block->requested);
    if (from < to) out.parts.push_back({extras_.at(block).source, from - begin, from - block->begin, to - from});
  });
  return out;
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
    if (!other_stream_) {
      ContextScope current(device);
      if (MEMX_CALL(device, cuStreamCreate, &other_stream_, unsigned(CU_STREAM_NON_BLOCKING)) != CUDA_SUCCESS) other_stream_ = nullptr;
    }
  });
  std::vector<std::byte> ordinary(count ? 0 : page_bytes);
  std::vector<std::byte*> buffers;
  for (const Handle& handle : staging) buffers.push_back(reinterpret_cast<std::byte*>(handle.value));
  if (!count) buffers.push_back(ordinary.data());

  ++moving_;
  lock.unlock();
  std::exception_ptr thrown;
  CUresult result = CUDA_SUCCESS;
  auto stream_of = [&](std::size_t buffer) { return buffer % 2 && other_stream_ ? other_stream_ : stream_; };
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
    ContextScope current(device);
    result = MEMX_CALL(device, cuMemcpyHtoDAsync, table.address(pages[i].page), static_cast<const void*>(buffers[buffer]),
                       std::size_t(page_bytes), stream_of(buffer));
  }
  Call call = Call::cuMemcpyHtoDAsync;
  {
    ContextScope current(device);
    for (CUstream stream : {stream_, other_stream_}) {
      const CUresult over = stream ? finish_copies(stream) : CUDA_SUCCESS;
      if (result == CUDA_SUCCESS && over != CUDA_SUCCESS) {
        result = over;
        call = Call::cuStreamSynchronize;
      }
    }
  }
  lock.lock();
  --moving_;
  for (const Handle& handle : staging) physical.put(handle);
  if (thrown) std::rethrow_exception(thrown);
  if (result != CUDA_SUCCESS) device.raise(result, call, "filling pages from their source");
}

}  // namespace memx
