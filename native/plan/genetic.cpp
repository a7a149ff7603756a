#include "genetic.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace memx::plan {

namespace {

constexpr std::size_t kPopulation = 80;
constexpr std::size_t kElite = 12;
constexpr std::size_t kNew = 12;
constexpr double kBias = 0.7;
constexpr int kPatience = 60;  // generations without a better one before the rest starts anew

Tie tie_of(double key) { return static_cast<Tie>(std::min(static_cast<int>(key * kTies), kTies - 1)); }

}  // namespace

Genetic::Genetic(const Problem& problem, const Model& model, std::uint64_t seed)
    : problem_(problem), model_(model), decoder_(model), random_(seed) {
  found();
}

void Genetic::evolve(Offsets& best, Bytes goal, std::int64_t placements, Stop& stop) {
  const auto n = static_cast<std::int64_t>(model_.count());
  std::size_t unknown = 0;  // from here on, individuals have no cost yet
  double leader = INFINITY;
  int waited = 0;
  while (true) {
    for (std::size_t i = unknown; i < population_.size(); ++i) {
      if (placements <= 0 || best.height <= goal || stop.now()) {
        population_.resize(std::max<std::size_t>(i, 1));
        std::stable_sort(population_.begin(), population_.begin() + i,
                         [](const Individual& a, const Individual& b) { return a.cost < b.cost; });
        return;
      }
      evaluate(population_[i], best, goal, stop);
      placements -= n;
    }
    std::stable_sort(population_.begin(), population_.end(),
                     [](const Individual& a, const Individual& b) { return a.cost < b.cost; });
    waited = population_[0].cost < leader ? 0 : waited + 1;
    leader = std::min(leader, population_[0].cost);

    std::vector<Individual> next;
    unknown = waited < kPatience ? kElite : 1;
    if (waited >= kPatience) waited = 0;
    for (std::size_t i = 0; i < unknown; ++i) next.push_back(population_[i]);
    for (std::size_t i = 0; i < kNew; ++i) next.push_back(random_individual());
    while (next.size() < kPopulation) {
      next.push_back(unknown == 1 ? random_individual()
                                  : child(population_[random_.below(kElite)],
                                          population_[kElite + random_.below(kPopulation - kElite)]));
    }
    population_ = std::move(next);
  }
}

std::vector<std::vector<double>> Genetic::leaders(std::size_t count) const {
  std::vector<std::vector<double>> priorities;
  for (std::size_t i = 0; i < std::min(count, population_.size()); ++i) {
    priorities.emplace_back(population_[i].keys.begin(), population_[i].keys.end() - 1);
  }
  return priorities;
}

// The usual orders under each tie rule, then chance.
void Genetic::found() {
  const auto n = static_cast<Index>(model_.count());
  const auto length = [&](Index b) { return static_cast<double>(model_.last[b] - model_.first[b] + 1); };
  for (int tie = 0; tie < kTies; ++tie) {
    for (int order = 0; order < 3; ++order) {
      const auto key = [&](Index b) {
        const double size = static_cast<double>(model_.size[b]);
        return order == 0 ? size : order == 1 ? length(b) : size * length(b);
      };
      std::vector<Index> ranked(n);
      std::iota(ranked.begin(), ranked.end(), 0);
      std::stable_sort(ranked.begin(), ranked.end(), [&](Index a, Index b) { return key(a) < key(b); });
      Individual individual;
      individual.keys.resize(n + 1);
      for (Index rank = 0; rank < n; ++rank) individual.keys[ranked[rank]] = static_cast<double>(rank) / n;
      individual.keys[n] = (tie + 0.5) / kTies;
      population_.push_back(std::move(individual));
    }
  }
  while (population_.size() < kPopulation) population_.push_back(random_individual());
}

void Genetic::evaluate(Individual& individual, Offsets& best, Bytes goal, Stop& stop) {
  const Bytes height = decoder_.decode(individual.keys, tie_of(individual.keys.back()), stop);
  individual.cost = static_cast<double>(height) + decoder_.share_above(goal);
  if (height >= best.height) return;
  best = {std::vector<Bytes>(problem_.count()), height, "genetic"};
  for (std::size_t b = 0; b < model_.count(); ++b) {
    best.at[model_.original[b]] = decoder_.offset(static_cast<Index>(b)) * model_.unit;
  }
}

Genetic::Individual Genetic::random_individual() {
  Individual individual;
  individual.keys.resize(model_.count() + 1);
  for (double& key : individual.keys) key = random_.uniform();
  return individual;
}

Genetic::Individual Genetic::child(const Individual& better, const Individual& other) {
  Individual individual;
  individual.keys.resize(better.keys.size());
  for (std::size_t i = 0; i < better.keys.size(); ++i) {
    individual.keys[i] = random_.uniform() < kBias ? better.keys[i] : other.keys[i];
  }
  return individual;
}

}  // namespace memx::plan
