#include "works.h"

#include <ctime>

#include "capture.h"

namespace memxsim {

CUresult submit_locked(Queue& queue, WorkRef work) {
  if (queue.context->error) return queue.context->error;
  if (queue.capture) return add_to_capture(queue, std::move(work));
  if (const CUresult forbidden = forbid_legacy_in_capture(queue)) return forbidden;
  enqueue(queue, std::move(work));
  return CUDA_SUCCESS;
}

CUresult submit(CUstream stream, WorkRef work) {
  const Lock lock(driver().lock);
  CUresult error = CUDA_SUCCESS;
  Queue* queue = queue_of(stream, &error);
  return queue ? submit_locked(*queue, std::move(work)) : error;
}

namespace {

std::shared_ptr<EventRecord> record_at(Queue& queue, std::vector<Point> waits) {
  auto record = std::make_shared<EventRecord>();
  record->point = enqueue(queue, std::make_shared<RecordEvent>(record->time_ns), std::move(waits));
  record->stamp = driver().oracle.stamp(queue);
  return record;
}

}  // namespace

std::shared_ptr<EventRecord> record_on(Queue& queue) { return record_at(queue, {}); }

std::shared_ptr<EventRecord> record_on_context(Context& context) {
  Oracle& oracle = driver().oracle;
  Queue& marker = *context.marker;
  std::vector<Point> waits;
  for (Queue* queue : context.busy)
    if (queue != &marker) waits.push_back(queue->tail());
  for (const QueueRef& queue : context.queues)
    if (queue.get() != &marker) oracle.follow(marker, oracle.stamp(*queue));
  oracle.follow(marker, context.dead);
  return record_at(marker, std::move(waits));
}

void wait_for_record(Queue& queue, const EventRecord& record) {
  driver().oracle.follow(queue, record.stamp);
  static const auto* wait = new std::shared_ptr<Marker>(std::make_shared<Marker>("cuStreamWaitEvent"));
  enqueue(queue, *wait, {record.point});
}

void wait_for_record(Context& context, const std::shared_ptr<EventRecord>& record) {
  for (const QueueRef& queue : context.queues)
    if (!queue->closed && queue->kind != Queue::Kind::internal) wait_for_record(*queue, *record);
  std::erase_if(context.context_waits, [](const auto& wait) { return is_complete(wait->point); });
  context.context_waits.push_back(record);
  context.context_waited.join(*record->stamp.known);
  context.context_waited.raise(record->stamp.slot, record->stamp.seq);
}

void RecordEvent::completed(Queue&) const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  *time_ns = static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

void Copy::perform(const Execution& execution) const {
  for (size_t i = 0; i + 1 < operands.size(); i += 2)
    for_pieces(execution, i, i + 1, [](char* to, const char* from, uint64_t bytes) { std::memmove(to, from, bytes); });
}

void fill_bytes(char* data, uint64_t bytes, uint32_t value, unsigned width) {
  if (width == 1) {
    std::memset(data, static_cast<int>(value & 0xff), bytes);
  } else if (width == 2) {
    std::fill_n(reinterpret_cast<uint16_t*>(data), bytes / 2, static_cast<uint16_t>(value));
  } else {
    std::fill_n(reinterpret_cast<uint32_t*>(data), bytes / 4, value);
  }
}

void Fill::perform(const Execution& execution) const {
  for (const Span& span : execution.spans) fill_bytes(span.data, span.bytes, value, width);
}

}  // namespace memxsim
