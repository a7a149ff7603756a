#include "memx/resource.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bit>

namespace memx {
namespace {

// Counts forks on the child's side; a resource of another generation is a parent's.
std::atomic<unsigned> fork_generation{0};

unsigned generation_to_watch() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); });
  (void)registered;
  return fork_generation.load(std::memory_order_relaxed);
}

std::uint64_t device_granularity(Device& device) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device.ordinal();
  std::size_t granularity = 0;
  CUresult result = MEMX_CALL(device, cuMemGetAllocationGranularity, &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) device.raise(result, Call::cuMemGetAllocationGranularity, "asking for the page size");
  return granularity;
}

}  // namespace

Config checked(Config config) {
  Device device(config.device);
  const std::uint64_t granularity = device_granularity(device);
  if (config.page_bytes == 0) config.page_bytes = granularity;
  if (config.page_bytes % granularity || !std::has_single_bit(config.page_bytes))
    throw Error(ErrorKind::kInvalidValue, "page size " + std::to_string(config.page_bytes) +
                                              " is not a power of two times the driver's granularity of " + std::to_string(granularity));
  if (config.device_limit == 0) config.device_limit = device.total_bytes();
  if (config.device_limit < config.page_bytes)
    throw Error(ErrorKind::kInvalidValue, "device_limit " + std::to_string(config.device_limit) +
                                              " is smaller than one page of " + std::to_string(config.page_bytes));
  if ((config.low_water || config.look_ahead) && !config.lazy)
    throw Error(ErrorKind::kInvalidValue, "low_water and look_ahead are for pages that come and go: this resource is not lazy");
  if (config.host_limit > 0 && config.host_limit < config.page_bytes)
    throw Error(ErrorKind::kInvalidValue, "host_limit " + std::to_string(config.host_limit) +
                                              " is smaller than one page of " + std::to_string(config.page_bytes) + "; 0 means none");
  return config;
}

Resource::Resource(const Config& config)
    : config_(checked(config)),
      device_(std::make_unique<Device>(config_.device)),
      store_(std::make_unique<Store>(*device_, config_, locks_)),
      first_address_(store_->space.base()),
      end_address_(first_address_ + store_->space.pages() * config_.page_bytes),
      generation_(generation_to_watch()) {}

Resource::~Resource() {
  if (forked()) {  // a child's copy: the driver is not there for it
    store_.release();
    device_.release();
    return;
  }
  close();
}

void Resource::close() {
  if (forked()) return;
  Lock lock(locks_);
  if (!store_ || locks_.closing) return;
  lock.wait_for_others();  // from here on only those are inside who were before
  std::unique_ptr<Store> store = std::move(store_);
  lock.drive([&] { store.reset(); });
  demands_.each([](Tally& tally) { tally.remove_all(); });
  active_.current = 0;
}

bool Resource::forked() const { return generation_ != fork_generation.load(std::memory_order_relaxed); }

Lock Resource::enter_even_closed() {
  if (forked())
    throw Error(ErrorKind::kInvalidState,
                "this memx resource was initialised before fork: a CUDA context does not survive it. Create the "
                "resource in the child, or start the child with the 'spawn' method");
  return Lock(locks_);
}

Lock Resource::enter_gate() {
  Lock lock = enter();
  lock.pass_gate();
  return lock;
}

Lock Resource::enter() {
  Lock lock = enter_even_closed();
  if (locks_.closing) throw Error(ErrorKind::kInvalidState, "this memx resource is closed");
  if (CUresult sticky = device_->sticky())
    throw Error(ErrorKind::kDriver,
                "an earlier " + device_->error_name(sticky) + " has made the device's context unusable in this process: restart it",
                sticky, "");
  return lock;
}

void Resource::update() { active_.set(demands_.allocated() + store_->pool.pending_bytes()); }

Block* Resource::live_block(std::uint64_t address, const char* doing) {
  const std::uint64_t base = store_->space.base();
  Block* block = address < base ? nullptr : store_->pool.starting_at(address - base);
  if (block && block->live && !block->leaving) return block;
  char text[200];
  std::snprintf(text, sizeof text, "cannot %s 0x%llx: not a live buffer of this resource (freed before, or another's)", doing,
                static_cast<unsigned long long>(address));
  throw Error(ErrorKind::kInvalidState, text);
}

std::uint64_t Resource::allocate(std::uint64_t bytes, CUstream stream, std::uint64_t align, Placement placement, std::uint32_t tag,
                                 const Extra* extra) {
  if (extra && !config_.lazy)
    throw Error(ErrorKind::kInvalidValue, "a source and a priority are for pages that come and go: this resource is not lazy");
  if (placement == Placement::kHost && config_.lazy)
    throw Error(ErrorKind::kInvalidValue, "a lazy buffer is nowhere until it is used, and on the device then: placement 'host' is for eager ones");
  if (bytes == 0) {
    enter();
    return 0;
  }
  if (bytes > 1ull << 62)
    throw Error(ErrorKind::kInvalidValue, "cannot allocate " + std::to_string(bytes) + " bytes: larger than any address range");
  if (align <= kGranularity && (align == 0 || std::has_single_bit(align)))
    align = kGranularity;
  else if (!std::has_single_bit(align) || align > 1ull << 40)
    throw Error(ErrorKind::kInvalidValue, "alignment " + std::to_string(align) + " is not a power of two up to 1 TiB");
  Lock lock = enter();
  if (placement == Placement::kHost && !(config_.oversubscribe && store_->host_mappable))
    throw Error(ErrorKind::kInvalidState,
                "no buffer can be born on the host here: the driver cannot map host memory for the device, or host memory is "
                "switched off (host_limit, oversubscribe)");
  Request request;
  request.requested = bytes;
  request.bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  request.align = align;
  request.slot = store_->order.slot_of(lock, stream);
  request.placement = placement;
  request.tag = tag;
  request.extra = extra;
  Block* block;
  try {
    block = arena_ ? planned_block(lock, request) : nullptr;
    if (!block) block = store_->allocate(lock, request);
  } catch (const Error& error) {
    if (error.kind == ErrorKind::kOutOfMemory) {
      ++out_of_memory_errors_;
      log_.add(TraceEvent::kOutOfMemory, 0, bytes, reinterpret_cast<std::uint64_t>(stream), tag);
    }
    throw;
  }
  demands_.add(bytes, block->bytes);
  update();
  const std::uint64_t address = store_->space.base() + block->begin;
  log_.add(TraceEvent::kAlloc, address, bytes, reinterpret_cast<std::uint64_t>(stream), tag);
  return address;
}

Block* Resource::planned_block(Lock& lock, const Request& request) {
  const std::shared_ptr<Arena> arena = arena_;
  const std::optional<std::uint64_t> offset = arena->playback.next(request.requested, request.slot);
  if (!offset) return nullptr;
  Block* block = store_->allocate_at(lock, request, arena->begin + *offset);
  block ? arena->playback.served() : arena->playback.blocked();
  return block;
}

void Resource::use_plans(std::vector<Plan> plans) {
  Lock lock = enter_gate();
  if (arena_) throw Error(ErrorKind::kInvalidState, "this resource has plans in use: stop them first, or give all plans at once");
  Playback playback(std::move(plans));
  const std::uint32_t tag = tags_.emplace("memx arena " + std::to_string(tags_.size()), tags_.size() + 1).first->second;
  const std::uint64_t page = config_.page_bytes, bytes = (playback.height() + page - 1) / page * page;
  const std::uint64_t begin = bytes ? store_->make_arena(lock, bytes, tag) : 0;
  arena_ = std::make_shared<Arena>(Arena{std::move(playback), begin, begin + bytes, tag});
}

void Resource::begin_step(std::optional<std::uint64_t> plan) {
  Lock lock = enter();
  if (!arena_) return;
  if (plan && *plan >= arena_->playback.plans())
    throw Error(ErrorKind::kInvalidValue, "there is no plan " + std::to_string(*plan) + " of " + std::to_string(arena_->playback.plans()));
  arena_->playback.step(plan);
}

void Resource::stop_plans() {
  Lock lock = enter_gate();
  if (!arena_) return;
  store_->end_arena(arena_->begin, arena_->end, arena_->tag);
  arena_.reset();
}

Resource::PlanStatistics Resource::plan_statistics() {
  Lock lock = enter_even_closed();
  if (!arena_) return {};
  const Playback& playback = arena_->playback;
  return {playback.served_count(), playback.departed_count(), playback.blocked_count(), arena_->end - arena_->begin};
}

void Resource::free(std::uint64_t address) { free_on(address, nullptr); }
void Resource::free(std::uint64_t address, CUstream stream) { free_on(address, &stream); }

void Resource::free_on(std::uint64_t address, const CUstream* stream) {
  if (address == 0 || forked()) return;
  std::shared_ptr<Source> source;  // ends after the lock
  Lock lock(locks_);
  if (locks_.closing) return;  // gone already
  const std::uint64_t offset = address - first_address_;
  if (offset < end_address_ - first_address_) store_->table.foresee(offset);
  Block* block = live_block(address, "free");
  store_->pool.foresee(block);
  StreamTable& order = store_->order;
  block->leaving = true;  // nobody else's from here on
  Slot freed_on = block->slot;
  if (stream) {
    try {
      freed_on = order.slot_of(lock, *stream);
    } catch (const Error&) {  // a stream that is gone: all work of the context stands for it
      freed_on = StreamTable::kContext;
    }
  }
  PointSet& points = block->points;
  order.prune_complete(points);
  points.add(order.now(lock, block->slot));
  if (freed_on != block->slot) points.add(order.now(lock, freed_on));
  if (block->used_on) {
    const auto used_on = *block->used_on;
    for (Slot slot : used_on)
      if (slot != freed_on) points.add(order.now(lock, slot));
  }
  demands_.remove(block->requested, block->bytes);
  log_.add(TraceEvent::kFree, address, block->requested,
           reinterpret_cast<std::uint64_t>(stream ? *stream : order.handle(block->slot)), block->asked_tag);
  source = store_->release(block);
  update();
}

void Resource::record_stream(std::uint64_t address, CUstream stream) {
  Lock lock = enter();
  if (address == 0) return;
  const Slot slot = store_->order.slot_of(lock, stream);
  Block* block = live_block(address, "record a stream for");
  store_->note_use(block, slot);
  log_.add(TraceEvent::kRecordStream, address, block->requested, reinterpret_cast<std::uint64_t>(stream), 0);
}

void Resource::note_wait(CUstream stream, CUstream on) {
  Lock lock = enter();
  const Slot later = store_->order.slot_of(lock, stream), earlier = store_->order.slot_of(lock, on);
  store_->order.note_wait(later, earlier);
  log_.add(TraceEvent::kWait, 0, 0, reinterpret_cast<std::uint64_t>(stream), reinterpret_cast<std::uint64_t>(on));
}

void Resource::exclude_stream(CUstream stream) {
  Lock lock = enter();
  store_->order.exclude(store_->order.slot_of(lock, stream));
}

void Resource::announce_capture(bool begin) {
  Lock lock = enter();
  store_->order.announce_capture(begin);
}

void Resource::private_tag(std::uint32_t tag) {
  Lock lock = enter();
  store_->make_private(tag);
}

void Resource::retire_tag(std::uint32_t tag) {
  Lock lock = enter_gate();
  store_->retire(tag);
  update();
}

std::uint64_t Resource::begin_use(const std::vector<Use>& uses, CUstream stream) {
  const Telling telling(*this);
  Lock lock = enter();
  const Slot slot = store_->order.slot_of(lock, stream);
  std::vector<Operand> operands;
  operands.reserve(uses.size());
  for (const Use& use : uses) {
    if (use.address == 0 || use.bytes == 0) continue;
    Block* block = live_block(use.address, "use");
    if (use.offset > block->requested || use.bytes > block->requested - use.offset)
      throw Error(ErrorKind::kInvalidValue, "bytes " + std::to_string(use.offset) + " to " + std::to_string(use.offset + use.bytes) +
                                                " are outside a buffer of " + std::to_string(block->requested) + " bytes");
    operands.push_back({block, block->begin + use.offset, block->begin + use.offset + use.bytes, use.mode});
  }
  return store_->begin_use(lock, operands, slot);
}

void Resource::end_use(std::uint64_t token) {
  if (forked()) return;
  const Telling telling(*this);
  Lock lock(locks_);
  if (store_ && !locks_.closing) store_->end_use(lock, token);
}

void Resource::expect(std::vector<Expected> allocations) {
  Lock lock = enter();
  store_->expect(std::move(allocations));
}

Thrashing Resource::thrashing() {
  Lock lock = enter();
  return store_->thrashing();
}

std::uint64_t Resource::generation(std::uint64_t address) {
  Lock lock = enter();
  return address ? store_->generation(live_block(address, "ask after")) : 0;
}

void Resource::listen(Listener listener) {
  std::shared_ptr<const Listener> now = listener ? std::make_shared<const Listener>(std::move(listener)) : nullptr;
  Lock lock = enter();
  store_->watch_moves(now != nullptr);
  listening_ = now != nullptr;
  listener_.swap(now);  // the one before ends after the lock
}

void Resource::tell() {
  if (!listening_ || forked()) return;
  std::shared_ptr<const Listener> listener;
  std::vector<Move> moves;
  {
    Lock lock(locks_);
    if (!store_ || locks_.closing || !listener_) return;
    for (const Moved& moved : store_->take_moved()) moves.push_back({first_address_ + moved.begin, moved.end - moved.begin, moved.place});
    listener = listener_;
  }
  if (!moves.empty()) (*listener)(moves);
}

std::uint64_t Resource::prefetch(std::uint64_t address, CUstream stream) {
  const Telling telling(*this);
  Lock lock = enter_gate();
  if (address == 0) return 0;
  const Slot slot = store_->order.slot_of(lock, stream);
  return store_->prefetch(lock, live_block(address, "prefetch"), slot);
}

std::uint64_t Resource::evict(std::uint64_t address) {
  const Telling telling(*this);
  Lock lock = enter_gate();
  return address ? store_->evict(lock, live_block(address, "evict")) : 0;
}

void Resource::pin(std::uint64_t address) {
  Lock lock = enter();
  if (address) store_->pin(live_block(address, "pin"));
}

void Resource::unpin(std::uint64_t address) {
  Lock lock = enter();
  if (address) store_->unpin(live_block(address, "unpin"));
}

void Resource::rebalance() {
  const Telling telling(*this);
  Lock lock = enter_gate();
  store_->rebalance(lock);
}

std::uint32_t Resource::tag_id(const std::string& name) {
  Lock lock = enter();
  return tags_.emplace(name, static_cast<std::uint32_t>(tags_.size() + 1)).first->second;
}

std::string Resource::tag_name(std::uint32_t tag) {
  Lock lock = enter();
  for (const auto& [name, id] : tags_)
    if (id == tag) return name;
  return "";
}

void Resource::limit_host(std::uint32_t tag, std::uint64_t bytes) {
  Lock lock = enter();
  store_->limit_host(tag, bytes);
}

void Resource::pause(std::uint32_t tag, bool keep) {
  const Telling telling(*this);
  Lock lock = enter_gate();
  store_->pause(lock, tag, keep);
}

void Resource::resume(std::uint32_t tag) {
  const Telling telling(*this);
  Lock lock = enter_gate();
  store_->resume(lock, tag);
}

std::uint64_t Resource::trim(std::uint64_t keep_bytes) {
  Lock lock = enter_gate();
  const std::uint64_t released = store_->trim(lock, keep_bytes);
  update();
  return released;
}

void Resource::read(std::uint64_t address, std::uint64_t offset, void* into, std::uint64_t bytes) {
  Lock lock = enter_gate();
  if (address == 0 || bytes == 0) return;
  Block* block = live_block(address, "read");
  if (offset > block->requested || bytes > block->requested - offset)
    throw Error(ErrorKind::kInvalidValue, "reading outside a buffer of " + std::to_string(block->requested) + " bytes");
  store_->read(lock, block, block->begin + offset, block->begin + offset + bytes, into);
}

std::uint64_t Resource::size_of(std::uint64_t address) {
  Lock lock = enter();
  return address ? live_block(address, "size")->requested : 0;
}

std::pair<std::uint64_t, std::uint64_t> Resource::extent_of(std::uint64_t address) {
  Lock lock = enter();
  if (!covers(address)) return {0, 0};
  const Block* block = store_->pool.at(address - store_->space.base());
  if (!block || !block->live) return {0, 0};
  return {store_->space.base() + block->begin, block->requested};
}

bool Resource::covers(std::uint64_t address) const { return address >= first_address_ && address < end_address_; }

std::uint64_t Resource::device_limit() {
  Lock lock = enter();
  return store_->physical.limit(Tier::kDevice);
}

void Resource::set_device_limit(std::uint64_t bytes) {
  Lock lock = enter_gate();
  if (bytes < config_.page_bytes)
    throw Error(ErrorKind::kInvalidValue,
                "device_limit " + std::to_string(bytes) + " is smaller than one page of " + std::to_string(config_.page_bytes));
  const std::uint64_t held = store_->physical.held_bytes(Tier::kDevice);
  if (held > bytes) store_->trim(lock, 0);
  if (const std::uint64_t left = store_->physical.held_bytes(Tier::kDevice); left > bytes)
    throw Error(ErrorKind::kInvalidState, "cannot lower the device limit to " + format_bytes(bytes) + ": " + format_bytes(left) +
                                              " are in use; free or evict buffers first");
  lock.drive([&] { store_->physical.set_device_limit(bytes); });
}

void Resource::enable_peer(int device) {
  Lock lock = enter_gate();
  if (device == config_.device) return;
  if (PageTable::Failure failure = store_->table.add_peer(lock, device))
    device_->raise(failure.result, failure.call, "giving device " + std::to_string(device) + " access");
}

bool Resource::can_be_reached_from(int device) {
  int can = 0;
  return MEMX_CALL(*device_, cuDeviceCanAccessPeer, &can, device, config_.device) == CUDA_SUCCESS && can;
}

}  // namespace memx
