#include "memx/store.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

namespace memx {
namespace {

constexpr std::chrono::seconds kWaitBound{60};

std::uint64_t reservation_pages(const Device& device, const Config& config) {
  const std::uint64_t backing = std::max(config.device_limit, device.total_bytes()) + config.host_limit;
  const std::uint64_t wanted = std::max<std::uint64_t>(8 * std::min(backing, std::uint64_t{1} << 44), std::uint64_t{256} << 30);
  return std::min(std::bit_ceil(wanted) / config.page_bytes, std::uint64_t{1} << 26);
}

}  // namespace

Store::Store(Device& device, const Config& config, Locks& locks)
    : device(device),
      config(config),
      order(device, config.reuse, config.framework),
      space(device, config.page_bytes, reservation_pages(device, config),
            (config.device_limit + config.page_bytes - 1) / config.page_bytes),
      physical(device, config.page_bytes, config.device_limit, config.oversubscribe ? config.host_limit : 0),
      table(device, space, physical, config.lazy),
      pool(order, space.base(), space.pages() * config.page_bytes),
      eviction_(make_eviction(config.eviction)) {
  ContextScope current(device);
  for (CUstream* stream : {&stream_, &in_stream_})
    if (CUresult result = MEMX_CALL(device, cuStreamCreate, stream, unsigned(CU_STREAM_NON_BLOCKING)); result != CUDA_SUCCESS) {
      if (stream == &in_stream_) MEMX_CALL(device, cuStreamDestroy, stream_);
      device.raise(result, Call::cuStreamCreate, "creating the copy streams");
    }
  Lock lock(locks);
  out_slot_ = order.slot_of(lock, stream_);
  in_slot_ = order.slot_of(lock, in_stream_);
  probe_host(lock);
}

Store::~Store() {
  ContextScope current(device);
  MEMX_CALL(device, cuCtxSynchronize);
  pool.for_each([&](Block& block) {
    for (std::uint64_t page = block.begin / config.page_bytes; page <= (block.end() - 1) / config.page_bytes; ++page) {
      drop_swap(page);
    }
  });
  for (const Dropped& one : dropped_) put_pinned(one.slot);
  for (CUstream stream : {stream_, in_stream_})
    if (stream) MEMX_CALL(device, cuStreamDestroy, stream);
}

// Whether the driver maps host pages where the device can reach them is found out by doing it once: the
// capability flag says yes on drivers that then fail.
void Store::probe_host(Lock& lock) {
  host_mappable = false;
  if (physical.limit(Tier::kHost) < config.page_bytes) return;
  std::vector<Handle> handles;
  if (physical.acquire(Tier::kHost, 1, handles) == CUDA_SUCCESS) {
    std::optional<std::uint64_t> page = space.claim(1);
    if (page && !table.map(lock, *page, handles)) {
      host_mappable = true;
      table.unmap(lock, table.mapping_at(*page));
    } else {
      physical.give_back(handles);
    }
    if (page) space.give_back(*page, 1);
  }
  physical.trim(Tier::kHost, 0);
  physical.reset_peaks();
}

void Store::wait(Lock& lock, const Point& point) {
  Event* const event = order.event_for(lock, point);
  if (!event) {
    if (order.complete(point)) return;
    if ((point.slot() == StreamTable::kContext || order.is_gone(point.slot())) && !order.has_context_events()) {
      synchronize_context(lock);
      return;
    }
    if (CUresult sticky = device.sticky()) device.raise(sticky, Call::cuEventRecord, "waiting for " + order.name(point.slot()));
    if (order.is_graph(point.slot()))
      throw Error(ErrorKind::kInvalidState,
                  "a captured graph uses these pages, and may do so again at any launch: they stay where they are");
    throw Error(ErrorKind::kInvalidState, "cannot wait for " + order.name(point.slot()) +
                                              ": no event can be recorded there (is it being captured?)");
  }
  struct Wait {
    std::mutex mutex;
    std::condition_variable done;
    bool over = false;
    CUresult result = CUDA_SUCCESS;
  };
  lock.unlock();
  CUresult result;
  bool timed_out = false;
  {
    ContextScope current(device);
    result = MEMX_CALL(device, cuEventQuery, event->handle);
    if (result == CUDA_ERROR_NOT_READY) {
      // The driver's wait has no bound, so another thread does it.
      auto wait = std::make_shared<Wait>();
      std::thread([wait, event = event->handle, synchronize = device.table().cuEventSynchronize, set = device.context(),
                   push = device.table().cuCtxPushCurrent, exchange = device.table().cuThreadExchangeStreamCaptureMode]() mutable {
        push(set);
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // no capture is broken by this thread's waiting
        exchange(&mode);
        CUresult outcome = synchronize(event);
        std::lock_guard<std::mutex> guard(wait->mutex);
        wait->result = outcome;
        wait->over = true;
        wait->done.notify_one();
      }).detach();
      std::unique_lock<std::mutex> guard(wait->mutex);
      timed_out = !wait->done.wait_for(guard, kWaitBound, [&] { return wait->over; });
      result = wait->result;
    }
    if (!timed_out && result == CUDA_SUCCESS) result = MEMX_CALL(device, cuEventQuery, event->handle);
  }
  lock.lock();
  if (timed_out)  // the event stays with the thread that waits for it
    throw Error(ErrorKind::kOutOfMemory, "waited " + std::to_string(kWaitBound.count()) + " s for work on " +
                                             order.name(point.slot()) + " that memory depends on, and it is not over: "
                                             "is that stream stuck?");
  order.let_go(event);
  if (result != CUDA_SUCCESS) device.raise(result, Call::cuEventSynchronize, "waiting for " + order.name(point.slot()));
  order.settle(point);
}

// Drivers before 12.5 cannot record an event for all work of a context.
void Store::synchronize_context(Lock& lock) {
  const Point point = order.mark(StreamTable::kContext);
  lock.unlock();
  CUresult result;
  {
    ContextScope current(device);
    result = MEMX_CALL(device, cuCtxSynchronize);
  }
  lock.lock();
  if (result != CUDA_SUCCESS) device.raise(result, Call::cuCtxSynchronize, "waiting for all work of the device");
  order.settle(point);
}

void Store::drain(Lock& lock) {
  if (order.capturing(lock, StreamTable::kLegacy))
    throw Error(ErrorKind::kInvalidState, "pages do not move while a stream is being captured; end the capture first");
  wait(lock, order.mark(StreamTable::kContext));
  if (order.poll(lock, true)) pool.tidy();
}

void Store::note_moved(std::uint64_t first, std::uint64_t pages, Place place) {
  if (!watching_) return;
  const std::uint64_t begin = first * config.page_bytes, end = begin + pages * config.page_bytes;
  each_live(begin, end, [&](Block* block) {
    moved_.push_back({std::max(begin, block->begin), std::min(end, block->begin + block->requested), place});
  });
}

std::string Store::out_of_memory(const Request& request, CUresult result) {
  const bool host = config.oversubscribe && request.placement != Placement::kDevice;
  auto bytes = [](std::uint64_t n) { return format_bytes(n); };
  const std::uint64_t held = physical.held_bytes(Tier::kDevice);
  const std::uint64_t cached = physical.cached_bytes(Tier::kDevice) + table.idle_bytes(Tier::kDevice);
  std::string text = "out of memory: asked for " + bytes(request.requested) + " on device " +
                     std::to_string(config.device) + ". Device: limit " + bytes(physical.limit(Tier::kDevice)) + ", reserved " +
                     bytes(held) + ", of it cached " + bytes(cached) + ", free in partly used pages " +
                     bytes(table.inactive_bytes()) + ", room " + bytes(physical.limit(Tier::kDevice) - std::min(held, physical.limit(Tier::kDevice))) + ". Host: limit " +
                     bytes(config.host_limit) + ", used " + bytes(physical.host_bytes()) + ", movable to it " +
                     bytes(config.lazy ? table.mapped_bytes(Tier::kDevice) - pinned_bytes_ : 0) +
                     ". Largest free range of addresses " + bytes(space.largest_free_pages() * config.page_bytes) + ". ";
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
    text += "The driver said " + device.error_name(result) + ". ";
  else if (physical.room_bytes(Tier::kDevice) + table.idle_bytes(Tier::kDevice) >= request.bytes)
    text += "The driver itself has no memory left: other programs may hold it. ";
  if (!host)
    text += config.oversubscribe ? "This request may not use host memory: allow it (placement), "
                                 : "Host memory is switched off: set oversubscribe=True, ";
  else if (!config.lazy && !host_mappable && config.host_limit)
    text += "This driver cannot map host memory for the device: use lazy=True, ";
  else
    text += "Raise host_limit, ";
  if (!host_limits_.empty()) text += "raise a tag's own limit on the host (limit_host), ";
  text += "raise device_limit, or free buffers.";
  return text;
}

}  // namespace memx
