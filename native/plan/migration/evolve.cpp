#include "evolve.h"

#include <algorithm>
#include <numeric>

namespace memx::plan::migration {

namespace {

constexpr std::size_t kElite = 4;
constexpr std::size_t kTournament = 3;
constexpr std::size_t kTriedSegments = 8;  // for an object of a child that is tried elsewhere
constexpr int kTriesAtRandom = 4;

bool better(const Individual& a, const Individual& b) { return a.cost < b.cost; }

}  // namespace

Evolution::Evolution(Pricer& pricer, std::uint64_t seed)
    : pricer_(pricer), problem_(pricer.problem), segments_(pricer.segments), random_(seed),
      by_access_(problem_.objects()), by_size_(problem_.objects()), groups_of_(problem_.objects()) {
  for (const Bytes bytes : problem_.size) reach_.push_back(segments_.reach(bytes));
  std::iota(by_access_.begin(), by_access_.end(), 0);
  std::iota(by_size_.begin(), by_size_.end(), 0);
  const auto larger = [&](Index a, Index b) { return problem_.size[a] > problem_.size[b]; };
  std::stable_sort(by_size_.begin(), by_size_.end(), larger);
  std::stable_sort(by_access_.begin(), by_access_.end(), [&](Index a, Index b) {
    const Index first = problem_.step[problem_.of(a)[0]], other = problem_.step[problem_.of(b)[0]];
    return first != other ? first < other : larger(a, b);
  });
  for (Index k = 0; k < problem_.count();) {
    Index end = k + 1;
    while (end < problem_.count() && problem_.step[end] == problem_.step[k]) ++end;
    if (end - k > 1) {
      for (Index i = k; i < end; ++i) groups_of_[problem_.object[i]].push_back(static_cast<Index>(groups_.size()));
      groups_.emplace_back(problem_.object.begin() + k, problem_.object.begin() + end);
    }
    k = end;
  }
}

std::vector<Individual> Evolution::first_generation(std::size_t count) {
  std::vector<Individual> population;
  // The largest have a segment each in half of them.
  for (std::size_t i = 0; i < count; ++i) population.push_back(random_individual(i % 2 == 0));
  std::stable_sort(population.begin(), population.end(), better);
  return population;
}

std::int64_t Evolution::evolve(std::vector<Individual>& population, const Effort& effort, Stop& stop) {
  std::stable_sort(population.begin(), population.end(), better);
  const std::size_t size = population.size();
  // Trying objects elsewhere prices about as many segments as two children have.
  const auto count = static_cast<std::size_t>(segments_.count());
  const std::size_t touched = 1 + 2 * count / (1 + std::min(count, kTriedSegments));
  std::int64_t waited = 0;
  for (std::int64_t g = 0; g < effort.generations && waited < effort.patience; ++g) {
    if (population[0].cost <= Cost{0, effort.goal} || stop.now()) break;
    const Cost leader = population[0].cost;
    std::vector<Individual> next(population.begin(), population.begin() + std::min(kElite, size));
    while (next.size() < size && !stop.now()) {
      next.push_back(child(population));
      if (effort.local) touch_up(next.back(), touched);
    }
    std::stable_sort(next.begin(), next.end(), better);
    // Twins take up room: a random one instead keeps the rest apart.
    for (std::size_t i = 1; i < next.size(); ++i)
      if (next[i].cost == next[i - 1].cost && next[i].homes == next[i - 1].homes && !stop())
        next[i] = random_individual(false);
    std::stable_sort(next.begin(), next.end(), better);
    population = std::move(next);
    waited = population[0].cost < leader ? 0 : waited + 1;
  }
  return waited;
}

const Individual& Evolution::chosen(const std::vector<Individual>& population) {
  std::size_t best = random_.below(population.size());
  for (std::size_t i = 1; i < kTournament; ++i) best = std::min(best, random_.below(population.size()));
  return population[best];
}

Individual Evolution::child(const std::vector<Individual>& population) {
  const Individual& a = chosen(population);
  const Individual& b = chosen(population);
  Individual child{a.homes, {}};
  const std::size_t n = a.homes.size();
  if (random_.below(2)) {
    for (std::size_t o = 0; o < n; ++o)
      if (random_.below(2)) child.homes[o] = b.homes[o];
  } else {
    // A stretch in the order of access or size.
    const auto& order = random_.below(2) ? by_access_ : by_size_;
    std::size_t from = random_.below(n), to = random_.below(n);
    if (from > to) std::swap(from, to);
    for (std::size_t i = from; i <= to; ++i) child.homes[order[i]] = b.homes[order[i]];
  }
  mutate(child.homes);
  repair(child.homes);
  child.cost = pricer_.price(child.homes);
  return child;
}

void Evolution::mutate(Homes& homes) {
  do {
    const auto o = static_cast<Index>(random_.below(homes.size()));
    if (random_.below(3) > 0) {
      homes[o] = static_cast<Index>(random_.below(reach_[o] + 1));
      continue;
    }
    const auto other = static_cast<Index>(random_.below(homes.size()));
    if (homes[other] <= reach_[o] && homes[o] <= reach_[other]) std::swap(homes[o], homes[other]);
  } while (random_.below(3) > 0);
}

bool Evolution::fits(const Homes& homes, Index object, Index segment) const {
  for (const Index g : groups_of_[object]) {
    Bytes room = segments_.bytes[segment] - problem_.size[object];
    for (const Index other : groups_[g]) {
      if (other == object || homes[other] != segment) continue;
      if (segments_.sharing == Sharing::kExclusive) return false;
      if ((room -= problem_.size[other]) < 0) return false;
    }
  }
  return true;
}

// A segment at random that no step forbids; any at random if there is none.
Index Evolution::somewhere(const Homes& homes, Index object) {
  const auto count = static_cast<std::size_t>(reach_[object] + 1);
  for (int i = 0; i < kTriesAtRandom; ++i) {
    const auto segment = static_cast<Index>(random_.below(count));
    if (fits(homes, object, segment)) return segment;
  }
  const std::size_t start = random_.below(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto segment = static_cast<Index>((start + i) % count);
    if (fits(homes, object, segment)) return segment;
  }
  return static_cast<Index>(start);
}

void Evolution::repair(Homes& homes) {
  for (int pass = 0; pass < 2; ++pass) {
    bool changed = false;
    for (const auto& group : groups_) {
      const std::size_t start = random_.below(group.size());
      for (std::size_t i = 0; i < group.size(); ++i) {
        const Index o = group[(start + i) % group.size()];
        if (fits(homes, o, homes[o])) continue;
        homes[o] = somewhere(homes, o);
        changed = true;
      }
    }
    if (!changed) return;
  }
}

Individual Evolution::random_individual(bool pinned) {
  Individual individual{Homes(problem_.objects(), -1), {}};
  if (pinned)
    for (Index s = 0; s < segments_.count() && s < problem_.objects(); ++s) individual.homes[by_size_[s]] = s;
  for (const Index o : by_access_)
    if (individual.homes[o] < 0) individual.homes[o] = somewhere(individual.homes, o);
  repair(individual.homes);
  individual.cost = pricer_.price(individual.homes);
  return individual;
}

void Evolution::touch_up(Individual& individual, std::size_t objects) {
  Placement placement(pricer_, individual.homes);
  for (std::size_t i = 0; i < objects; ++i) {
    const auto o = static_cast<Index>(random_.below(individual.homes.size()));
    const auto count = static_cast<std::size_t>(reach_[o] + 1);
    Index best = placement.homes()[o];
    Cost least = placement.cost();
    for (std::size_t t = 0; t < std::min(count, kTriedSegments); ++t) {
      const auto segment = static_cast<Index>(count <= kTriedSegments ? t : random_.below(count));
      const Cost cost = placement.with(o, segment);
      if (cost < least) least = cost, best = segment;
    }
    placement.move(o, best);
  }
  individual = {placement.homes(), placement.cost()};
}

}  // namespace memx::plan::migration
