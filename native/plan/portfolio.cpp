#include "portfolio.h"

#include <algorithm>
#include <cmath>

namespace memx::plan {

namespace {

constexpr std::int64_t kRunNodes = 2000;     // of the shortest run
constexpr std::int64_t kRoundNodes = 60'000;
constexpr std::int64_t kProofNodes = 20'000'000;
constexpr int kTableBits = 20;
constexpr double kSuggestedSpread = 4;       // about that of the logarithms

// What the search starts from, as measured on hard problems: where a buffer can go is decided best where
// fewest can, or where most is left to place.
struct Recipe {
  Tie tie;
  int key;
};
enum Key { kSize, kSections, kArea, kVolume, kBaseKeys };
constexpr Recipe kRecipes[] = {
    {Tie::kFewest, kSize},   {Tie::kFewest, kSections}, {Tie::kFewest, kArea},     {Tie::kFewest, kVolume},
    {Tie::kFewest, kSections}, {Tie::kFullest, kSize},  {Tie::kFullest, kSections},
};
constexpr double kNoise[] = {0.05, 0.1, 0.2, 0.4};

// 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ... (Luby, Sinclair, Zuckerman 1993)
std::int64_t luby(std::int64_t i) {
  std::int64_t power = 1;
  while (power - 1 < i) power *= 2;
  if (power - 1 == i) return power / 2;
  return luby(i - power / 2 + 1);
}

}  // namespace

Portfolio::Portfolio(const Problem& problem, const Model& model, std::uint64_t seed)
    : problem_(problem),
      model_(model),
      random_(seed),
      keys_(kBaseKeys),
      priority_(model.count()),
      failed_(kTableBits) {
  for (std::size_t b = 0; b < model.count(); ++b) {
    const double size = std::log(static_cast<double>(model.size[b]));
    const double sections = std::log(static_cast<double>(model.last[b] - model.first[b] + 1));
    keys_[kSize].push_back(size);
    keys_[kSections].push_back(sections);
    keys_[kArea].push_back(size + sections);
    keys_[kVolume].push_back(size + std::log(static_cast<double>(problem.duration[model.original[b]])));
  }
}

void Portfolio::suggest(std::vector<double> priority) {
  for (double& key : priority) key *= kSuggestedSpread;
  keys_.push_back(std::move(priority));
}

template <class Placed>
void Portfolio::accept(const Placed& placed, const char* how, Improved& improved) const {
  Offsets found{std::vector<Bytes>(problem_.count()), 0, how};
  for (std::size_t b = 0; b < model_.count(); ++b) {
    const Index o = model_.original[b];
    found.at[o] = placed.offset(static_cast<Index>(b)) * model_.unit;
    found.height = std::max(found.height, found.at[o] + problem_.size[o]);
  }
  if (found.height < improved.best.height) improved.best = std::move(found);
}

bool Portfolio::improve(Improved& improved, Bytes capacity, Bytes tolerance, int rounds, Stop& stop) {
  if (runs_ == 0) dive(improved, capacity < 0 ? improved.bound + tolerance : capacity, stop);
  for (; rounds > 0; --rounds, ++rounds_done_) {
    const bool done = capacity >= 0 ? fit(improved, capacity, stop) : minimise(improved, tolerance, stop);
    if (done) return true;
    if (stop.now()) return false;
  }
  return false;
}

// One descent by each recipe: cheap, and often better than greedy.
void Portfolio::dive(Improved& improved, Bytes goal, Stop& stop) {
  Decoder decoder(model_);
  for (const Recipe& recipe : kRecipes) {
    if (improved.best.height <= goal || decoder.decode(keys_[recipe.key], recipe.tie, stop) == kNever) return;
    accept(decoder, "lowest section", improved);
  }
}

bool Portfolio::fit(Improved& improved, Bytes capacity, Stop& stop) {
  if (improved.best.height > capacity && improved.bound <= capacity) {
    const Outcome outcome = attempt(capacity, improved, stop);
    if (outcome == Outcome::kExhausted && prove(capacity, stop)) improved.bound = model_.height_from(capacity + 1);
  }
  return improved.best.height <= capacity || improved.bound > capacity;
}

// Aims at the bound, then halves the way from what it came to think impossible to what it has.
bool Portfolio::minimise(Improved& improved, Bytes tolerance, Stop& stop) {
  const auto done = [&] { return improved.best.height - improved.bound <= tolerance; };
  improved.bound = model_.height_from(improved.bound);
  Bytes assumed = improved.bound;
  Bytes target = model_.height_within(improved.bound + tolerance);
  while (assumed < improved.best.height && !done() && !stop.now()) {
    const Outcome outcome = attempt(target, improved, stop);
    if (outcome != Outcome::kFound) {
      assumed = model_.height_from(target + 1);
      const bool next_to_bound = target == improved.bound;
      if (outcome == Outcome::kExhausted && next_to_bound && prove(target, stop)) improved.bound = assumed;
    }
    const Bytes last = model_.height_within(improved.best.height - 1);
    target = std::max(assumed, model_.height_within(assumed + (last - assumed) / 2));
  }
  return done();
}

Outcome Portfolio::attempt(Bytes target, Improved& improved, Stop& stop) {
  std::int64_t nodes = round_nodes();
  if (target > failed_for_) failed_.clear();  // what fails with more fails with less, not the reverse
  failed_for_ = target;
  TreeSearch search(model_, target, &failed_);
  const std::int64_t shortest = std::max<std::int64_t>(kRunNodes, 4 * static_cast<std::int64_t>(model_.count()));
  for (std::int64_t run = 1; nodes > 0 && !stop.now(); ++run) {
    next_priority();
    const Outcome outcome = search.run(priority_, tie_, shortest * luby(run), stop);
    nodes -= search.nodes();
    if (outcome == Outcome::kFound) accept(search, "tree search", improved);
    if (outcome != Outcome::kLimit) return outcome;
  }
  return Outcome::kLimit;
}

std::int64_t Portfolio::round_nodes() const {
  const std::int64_t first = std::max<std::int64_t>(kRoundNodes, 20 * static_cast<std::int64_t>(model_.count()));
  return first << std::min(2 * rounds_done_, 24);
}

bool Portfolio::prove(Bytes target, Stop& stop) {
  TreeSearch search(model_, target, nullptr);
  for (std::size_t b = 0; b < model_.count(); ++b) priority_[b] = keys_[kArea][b];
  return search.run(priority_, Tie::kFewest, kProofNodes, stop) == Outcome::kExhausted;
}

void Portfolio::next_priority() {
  const std::size_t suggested = keys_.size() - kBaseKeys;
  const double noise = kNoise[random_.below(std::size(kNoise))];
  const Recipe recipe = kRecipes[random_.below(std::size(kRecipes))];
  std::size_t key = static_cast<std::size_t>(recipe.key);
  tie_ = recipe.tie;
  if (suggested > 0 && random_.below(8) == 0) key = kBaseKeys + random_.below(suggested);
  ++runs_;
  for (std::size_t b = 0; b < priority_.size(); ++b) priority_[b] = keys_[key][b] + noise * random_.normal();
}

}  // namespace memx::plan
