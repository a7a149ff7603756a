#include "bind.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "../bind.h"
#include "branch.h"
#include "evolve.h"
#include "settle.h"

namespace memx::plan::migration {

namespace {

using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void make(Accesses* self, const Column& size, const Column& keep, const Column& object, const Column& step,
          const Column& mode) {
  if (keep.shape(0) != size.shape(0) || step.shape(0) != object.shape(0) || mode.shape(0) != object.shape(0))
    throw nb::value_error("columns of different lengths");
  nb::gil_scoped_release released;
  new (self) Accesses(view(size), view(keep), view(object), view(step), view(mode));
}

Segments segments_of(const Column& bytes, bool exclusive) {
  Segments segments{{bytes.data(), bytes.data() + bytes.shape(0)}, exclusive ? Sharing::kExclusive : Sharing::kPacked};
  if (segments.bytes.empty() || !std::is_sorted(segments.bytes.rbegin(), segments.bytes.rend()))
    throw nb::value_error("segments must be in descending order");
  return segments;
}

Homes homes_of(const Accesses& problem, const Segments& segments, std::span<const std::int64_t> column) {
  if (column.size() != problem.size.size()) throw nb::value_error("homes of another number of objects");
  Homes homes(column.begin(), column.end());
  for (Index o = 0; o < problem.objects(); ++o)
    if (homes[o] < 0 || homes[o] > segments.reach(problem.size[o]))
      throw nb::value_error("an object too large for its segment");
  return homes;
}

std::vector<Bytes> wide(const Homes& homes) { return {homes.begin(), homes.end()}; }

// One row of homes after the other, with their costs.
nb::tuple as_tuple(const Accesses& problem, const std::vector<Individual>& population) {
  std::vector<Bytes> rows, excess, moved;
  for (const Individual& individual : population) {
    rows.insert(rows.end(), individual.homes.begin(), individual.homes.end());
    excess.push_back(individual.cost.excess);
    moved.push_back(problem.base + individual.cost.moved);
  }
  return nb::make_tuple(as_array(std::move(rows)), as_array(std::move(excess)), as_array(std::move(moved)));
}

std::vector<Individual> population_of(Pricer& pricer, const Column& rows) {
  const auto n = static_cast<std::size_t>(pricer.problem.objects());
  if (n == 0 || rows.shape(0) == 0 || rows.shape(0) % n)
    throw nb::value_error("a population of another number of objects");
  std::vector<Individual> population;
  for (std::size_t i = 0; i < rows.shape(0); i += n)
    population.push_back({homes_of(pricer.problem, pricer.segments, view(rows).subspan(i, n)), {}});
  return population;
}

nb::tuple first_generation(const Accesses& problem, const Column& bytes, bool exclusive, std::size_t count,
                           std::uint64_t seed, double seconds) {
  const Segments segments = segments_of(bytes, exclusive);
  return as_tuple(problem, run(seconds, [&](Stop&) {
                    Pricer pricer(problem, segments);
                    return Evolution(pricer, seed).first_generation(count);
                  }));
}

nb::tuple evolve(const Accesses& problem, const Column& bytes, bool exclusive, const Column& rows, std::uint64_t seed,
                 std::int64_t generations, std::int64_t patience, bool local, Bytes goal, double seconds) {
  const Segments segments = segments_of(bytes, exclusive);
  Pricer pricer(problem, segments);
  std::vector<Individual> population = population_of(pricer, rows);
  const std::int64_t waited = run(seconds, [&](Stop& stop) {
    for (Individual& individual : population) individual.cost = pricer.price(individual.homes);
    return Evolution(pricer, seed).evolve(population, {generations, patience, local, goal - problem.base}, stop);
  });
  const nb::tuple found = as_tuple(problem, population);
  return nb::make_tuple(found[0], found[1], found[2], waited);
}

nb::tuple anneal(const Accesses& problem, const Column& bytes, bool exclusive, const Column& homes, std::uint64_t seed,
                 std::int64_t moves, Bytes goal, double seconds) {
  const Segments segments = segments_of(bytes, exclusive);
  Individual individual{homes_of(problem, segments, view(homes)), {}};
  run(seconds, [&](Stop& stop) {
    Pricer pricer(problem, segments);
    Evolution evolution(pricer, seed);
    individual.cost = pricer.price(individual.homes);
    evolution.improve(individual, 8, stop);
    if (moves) evolution.anneal(individual, moves, goal - problem.base, stop);
    return 0;
  });
  return as_tuple(problem, {individual});
}

nb::tuple greedy(const Accesses& problem, const Column& bytes, bool exclusive, int order, bool tight, double seconds) {
  if (order < 0 || order > static_cast<int>(Order::kTraffic)) throw nb::value_error("no such order");
  const Segments segments = segments_of(bytes, exclusive);
  return as_tuple(problem, run(seconds, [&](Stop& stop) {
                    Pricer pricer(problem, segments);
                    return std::vector{Evolution(pricer, 0).greedy(static_cast<Order>(order), tight, stop)};
                  }));
}

nb::tuple search(const Accesses& problem, const Column& bytes, bool exclusive, Bytes below, std::int64_t nodes,
                 double seconds) {
  const Segments segments = segments_of(bytes, exclusive);
  bool exact = false;
  Searched found = run(seconds, [&](Stop& stop) {
    Pricer pricer(problem, segments);
    Searched searched = branch(pricer, {0, below - problem.base}, nodes, stop);
    exact = pricer.exact();
    return searched;
  });
  nb::object homes = nb::none();
  if (found.found) homes = as_array(wide(found.homes));
  return nb::make_tuple(homes, problem.base + found.best.moved, found.complete && exact);
}

// None: not known.
nb::object can_assign(const Accesses& problem, const Column& bytes, bool exclusive, Index steps, std::int64_t nodes,
                      double seconds) {
  const Segments segments = segments_of(bytes, exclusive);
  Homes homes;
  const auto found =
      run(seconds, [&](Stop& stop) { return assignable(problem, segments, steps, nodes, &homes, stop); });
  if (!found) return nb::none();
  if (!*found) return nb::make_tuple(false, nb::none());
  return nb::make_tuple(true, as_array(wide(homes)));
}

nb::tuple decisions(const Accesses& problem, Decisions&& found) {
  return nb::make_tuple(as_array({found.dropped.begin(), found.dropped.end()}), found.cost.excess,
                        problem.base + found.cost.moved, found.exact);
}

nb::tuple settled(const Accesses& problem, const Column& bytes, bool exclusive, const Column& homes,
                  std::int64_t rounds, std::uint64_t seed, double seconds) {
  const Segments segments = segments_of(bytes, exclusive);
  const Homes chosen = homes_of(problem, segments, view(homes));
  return decisions(problem, run(seconds, [&](Stop& stop) {
                     return settle(problem, segments, chosen, rounds, seed, stop);
                   }));
}

nb::tuple held(const Accesses& problem, Bytes capacity, const Numbers& priority, std::int64_t rounds, Bytes goal,
               std::uint64_t seed, double seconds) {
  const std::vector<double> priorities(priority.data(), priority.data() + priority.shape(0));
  if (!priorities.empty() && priorities.size() != problem.object.size())
    throw nb::value_error("priorities of another number of accesses");
  return decisions(problem, run(seconds, [&](Stop& stop) {
                     return hold(problem, capacity, priorities, rounds, goal - problem.base, seed, stop);
                   }));
}

nb::tuple ruled(const Accesses& problem, Bytes capacity, int rule) {
  if (rule < 0 || rule >= static_cast<int>(std::size(kRules))) throw nb::value_error("no such rule");
  Decisions out;
  out.exact = false;
  out.dropped.assign(problem.count(), 0);
  std::vector<Index> all(problem.count());
  std::iota(all.begin(), all.end(), 0);
  out.cost = Memory(problem).run(all, capacity, kRules[rule], &out.dropped);
  return decisions(problem, std::move(out));
}

}  // namespace

void bind(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Accesses>(m, "Accesses")
      .def("__init__", &make, "size"_a, "keep"_a, "object"_a, "step"_a, "mode"_a)
      .def_ro("base", &Accesses::base);
  m.def("first_generation", &first_generation, "problem"_a, "segments"_a, "exclusive"_a, "count"_a, "seed"_a,
        "seconds"_a);
  m.def("evolve", &evolve, "problem"_a, "segments"_a, "exclusive"_a, "population"_a, "seed"_a, "generations"_a,
        "patience"_a, "local"_a, "goal"_a, "seconds"_a);
  m.def("anneal", &anneal, "problem"_a, "segments"_a, "exclusive"_a, "homes"_a, "seed"_a, "moves"_a, "goal"_a,
        "seconds"_a);
  m.def("greedy_homes", &greedy, "problem"_a, "segments"_a, "exclusive"_a, "order"_a, "tight"_a, "seconds"_a);
  m.def("branch", &search, "problem"_a, "segments"_a, "exclusive"_a, "below"_a, "nodes"_a, "seconds"_a);
  m.def("assignable", &can_assign, "problem"_a, "segments"_a, "exclusive"_a, "steps"_a, "nodes"_a, "seconds"_a);
  m.def("settle", &settled, "problem"_a, "segments"_a, "exclusive"_a, "homes"_a, "rounds"_a, "seed"_a, "seconds"_a);
  m.def("hold", &held, "problem"_a, "capacity"_a, "priority"_a, "rounds"_a, "goal"_a, "seed"_a, "seconds"_a);
  m.def("rule", &ruled, "problem"_a, "capacity"_a, "rule"_a);
}

}  // namespace memx::plan::migration
