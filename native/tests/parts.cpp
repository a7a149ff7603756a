// The parts of an exchange, and what goes round, against arithmetic by hand.
#include "memx/parts.h"

#include <numeric>

#include "memx/recurrence.h"
#include "require.h"

namespace {

using std::chrono::microseconds;

void parts_follow_the_costs() {
  memx::PartCosts costs;
  REQUIRE(costs.shortest() == 16);
  costs.measure(microseconds(10), microseconds(24), 8);  // 8 us and 2 us a page
  costs.add_unmapping(10, microseconds(10));
  costs.add_mapping(100, microseconds(100));
  REQUIRE(costs.shortest() == 32);
  // 136 us of the short one's second step hide 67 pages at (8 + 2 * 320) / 320 us; the 20 left over are spread over five.
  REQUIRE((costs.parts(320) == std::vector<std::uint64_t>{36, 71, 71, 71, 71}));
  for (std::uint64_t pages = 1; pages < 1000; ++pages) {
    const std::vector<std::uint64_t> parts = costs.parts(pages);
    REQUIRE(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}) == pages);
  }
  costs.measure(microseconds(5), microseconds(5), 8);  // a clock that shows no difference
  REQUIRE(costs.shortest() == 64);
  costs.measure(microseconds(5), microseconds(40), 8);  // nothing but the pages themselves
  REQUIRE(costs.shortest() == 4);
}

std::vector<memx::Run> page(std::uint64_t number) { return {{number, 1}}; }

void a_cycle_is_seen() {
  memx::Recurrence uses;
  for (std::uint64_t i = 0; i < 5 + 4; ++i) {
    uses.add(page(i % 5));
    REQUIRE(!uses.expected(1));  // four of five have come again
  }
  for (std::uint64_t i = 9; i < 40; ++i) {
    uses.add(page(i % 5));
    for (std::uint64_t ahead = 1; ahead < 12; ++ahead) REQUIRE(*uses.expected(ahead) == page((i + ahead) % 5));
  }
  uses.add(page(3));
  REQUIRE(!uses.expected(1));
}

void a_long_history_is_forgotten() {
  memx::Recurrence uses;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    uses.add(page(i));
    REQUIRE(!uses.expected(1));
  }
  for (std::uint64_t i = 0; i < 100; ++i) uses.add(page(i % 20));
  REQUIRE(*uses.expected(1) == page(0));
}

}  // namespace

int main() {
  parts_follow_the_costs();
  a_cycle_is_seen();
  a_long_history_is_forgotten();
  return 0;
}
