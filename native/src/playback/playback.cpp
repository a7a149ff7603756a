#include "memx/playback.h"

#include <algorithm>

namespace memx {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t bytes) {
  hash ^= bytes + 0x9E3779B97F4A7C15ull + (hash << 6) + (hash >> 2);
  return hash * 0xBF58476D1CE4E5B9ull;
}

}  // namespace

Playback::Playback(std::vector<Plan> plans) {
  for (Plan& plan : plans) {
    Track track;
    track.prefix.assign(plan.allocations.size() + 1, 0);
    for (std::size_t i = plan.repeat_from; i < plan.allocations.size(); ++i)
      track.prefix[i + 1] = mix(track.prefix[i], plan.allocations[i].bytes);
    for (const PlannedAllocation& a : plan.allocations) height_ = std::max(height_, a.offset + a.bytes);
    track.plan = std::move(plan);
    tracks_.push_back(std::move(track));
  }
}

bool Playback::matches(const Track& track, std::size_t index, std::uint64_t bytes, Slot slot) {
  if (index >= track.plan.allocations.size()) return false;
  const PlannedAllocation& planned = track.plan.allocations[index];
  if (planned.bytes != bytes) return false;
  if (planned.stream < 0) return true;
  const auto known = track.slots.find(planned.stream);
  return known == track.slots.end() || known->second == slot;
}

void Playback::wrap() {
  position_ = tracks_[track_].plan.repeat_from;
  seen_ = 0;
  faithful_ = repeating_ = true;
}

void Playback::step(std::optional<std::size_t> plan) {
  if (plan) {
    track_ = *plan;
    wrap();
    return;
  }
  // Before its first repetition a plan may have what happens once, such as the parameters.
  if (!tracks_.empty() && (repeating_ || position_ >= tracks_[track_].plan.repeat_from)) wrap();
}

// Another plan that begins as this step began and goes on with this allocation.
bool Playback::change_track(std::uint64_t bytes, Slot slot) {
  if (!faithful_ || !repeating_) return false;
  const std::size_t done = position_ - tracks_[track_].plan.repeat_from;
  for (std::size_t other = 0; other < tracks_.size(); ++other) {
    const Track& track = tracks_[other];
    const std::size_t index = track.plan.repeat_from + done;
    if (other == track_ || !matches(track, index, bytes, slot) || track.prefix[index] != seen_) continue;
    track_ = other;
    position_ = index;
    return true;
  }
  return false;
}

// Something was left out: go on where the sequence has this allocation next, or where a step begins.
bool Playback::find_ahead(std::uint64_t bytes, Slot slot) {
  const Track& track = tracks_[track_];
  const std::size_t size = track.plan.allocations.size(), first = track.plan.repeat_from;
  for (std::size_t index = position_ + 1; index < std::min(position_ + kLookAhead, size); ++index)
    if (matches(track, index, bytes, slot)) {
      position_ = index;
      faithful_ = false;
      return true;
    }
  const bool late = position_ > first + (size - first) / 2 || lost_ >= kLost;
  if (!late || !matches(track, first, bytes, slot)) return false;
  wrap();
  return true;
}

std::optional<std::uint64_t> Playback::next(std::uint64_t bytes, Slot slot) {
  if (tracks_.empty()) return std::nullopt;
  if (position_ >= tracks_[track_].plan.allocations.size()) wrap();
  if (!matches(tracks_[track_], position_, bytes, slot) && !change_track(bytes, slot) && !find_ahead(bytes, slot)) {
    faithful_ = false;
    ++departed_;
    ++lost_;
    return std::nullopt;
  }
  lost_ = 0;
  Track& track = tracks_[track_];
  const PlannedAllocation& planned = track.plan.allocations[position_++];
  if (planned.stream >= 0) track.slots.emplace(planned.stream, slot);
  seen_ = mix(seen_, bytes);
  return planned.offset;
}

}  // namespace memx
