#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <new>

#include "bind.h"
#include "memx/chunks.h"
#include "greedy.h"
#include "genetic.h"
#include "model.h"
#include "portfolio.h"
#include "problem.h"
#include "migration/bind.h"

namespace memx::plan {

namespace {

constexpr int kEndless = 1 << 30;  // rounds: until the time is over
constexpr int kRoundsBeforeSeeds = 3;
constexpr std::int64_t kSeedPlacements = 500'000;
constexpr std::size_t kSeeds = 4;

void make(Problem* self, const Column& lower, const Column& upper, const Column& size, const Column& alignment,
          const Column& fixed) {
  const std::size_t n = lower.shape(0);
  for (const Column* column : {&upper, &size, &alignment, &fixed}) {
    if (column->shape(0) != n) throw nb::value_error("columns of different lengths");
  }
  nb::gil_scoped_release released;
  new (self) Problem(view(lower), view(upper), view(size), view(alignment), view(fixed));
}

nb::tuple py_greedy(const Problem& problem, Bytes capacity, double seconds) {
  Offsets found = run(seconds, [&](Stop& stop) { return greedy(problem, capacity, stop); });
  return nb::make_tuple(as_array(std::move(found.at)), found.height, found.how);
}

Improved from(const Problem& problem, const Column& start) {
  if (start.shape(0) != problem.count()) throw nb::value_error("a start of another length");
  Improved improved;
  improved.bound = problem.bound;
  improved.best.at.assign(start.data(), start.data() + start.shape(0));
  for (std::size_t b = 0; b < problem.count(); ++b) {
    improved.best.height = std::max(improved.best.height, improved.best.at[b] + problem.size[b]);
  }
  return improved;
}

nb::tuple as_tuple(Improved&& improved) {
  return nb::make_tuple(as_array(std::move(improved.best.at)), improved.best.height, improved.best.how,
                        improved.bound);
}

nb::tuple py_genetic(const Problem& problem, const Column& start, Bytes capacity, std::uint64_t seed, double seconds) {
  Improved improved = from(problem, start);
  run(seconds, [&](Stop& stop) {
    const Model model(problem);
    Genetic(problem, model, seed).evolve(improved.best, std::max(capacity, problem.bound), std::numeric_limits<std::int64_t>::max(), stop);
    return 0;
  });
  return as_tuple(std::move(improved));
}

nb::tuple py_search(const Problem& problem, const Column& start, Bytes capacity, bool to_the_byte, bool seeded,
                    std::uint64_t seed, double seconds) {
  Improved improved = from(problem, start);
  run(seconds, [&](Stop& stop) {
    const Model model(problem);
    Portfolio portfolio(problem, model, seed);
    const Bytes tolerance = to_the_byte ? 0 : model.unit - 1;
    if (seeded && !portfolio.improve(improved, capacity, tolerance, kRoundsBeforeSeeds, stop)) {
      Genetic genetic(problem, model, seed);
      genetic.evolve(improved.best, std::max(capacity, improved.bound), kSeedPlacements, stop);
      for (auto& priority : genetic.leaders(kSeeds)) portfolio.suggest(std::move(priority));
    }
    portfolio.improve(improved, capacity, tolerance, kEndless, stop);
    return 0;
  });
  return as_tuple(std::move(improved));
}

}  // namespace

}  // namespace memx::plan

NB_MODULE(_core, m) {
  using namespace memx::plan;
  using namespace nb::literals;
  nb::class_<Problem>(m, "Problem")
      .def("__init__", &make, "lower"_a, "upper"_a, "size"_a, "alignment"_a, "fixed"_a)
      .def_ro("bound", &Problem::bound)
      .def_ro("sections", &Problem::sections)
      .def_ro("pairs", &Problem::pairs);
  m.def("greedy", &py_greedy, "problem"_a, "capacity"_a, "seconds"_a);
  m.def("searchable", &Model::affordable, "problem"_a);
  m.def("search", &py_search, "problem"_a, "start"_a, "capacity"_a, "to_the_byte"_a, "seeded"_a,
        "seed"_a, "seconds"_a);
  m.def("genetic", &py_genetic, "problem"_a, "start"_a, "capacity"_a, "seed"_a, "seconds"_a);
  m.def("balanced_chunks",
        [](std::uint64_t total, const nb::callable& cost_a, const nb::callable& cost_b, std::uint64_t shortest, std::uint64_t align,
           std::uint64_t most, double conflict) {
          auto call = [](const nb::callable& cost) { return [&](std::uint64_t size) { return nb::cast<double>(cost(size)); }; };
          return memx::balanced_chunks(total, call(cost_a), call(cost_b), shortest, align, most, conflict);
        },
        "total"_a, "cost_a"_a, "cost_b"_a, "shortest"_a, "align"_a, "most"_a, "conflict"_a);
  migration::bind(m);
}
