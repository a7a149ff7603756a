// The short lock: one at a time, and nobody forgotten.
#include "memx/lock.h"

#include <atomic>
#include <thread>
#include <vector>

#include "require.h"

namespace {

void for_each_thread(unsigned threads, const auto& work) {
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; ++i) running.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : running) thread.join();
}

// Held for so long now and then that the others sleep. Its end shows that each of them was woken.
void one_at_a_time() {
  memx::ShortMutex mutex;
  constexpr unsigned kThreads = 8, kRounds = 20'000;
  std::uint64_t rounds = 0;
  for_each_thread(kThreads, [&](unsigned thread) {
    for (unsigned round = 0; round < kRounds; ++round) {
      if (round % 3 == 2) {
        if (!mutex.try_lock()) mutex.lock();
      } else {
        mutex.lock();
      }
      ++rounds;
      if ((round + thread) % 64 == 0) std::this_thread::yield();
      if ((round + thread) % 512 == 0)
        for (int i = 0; i < 100; ++i) std::this_thread::yield();
      mutex.unlock();
    }
  });
  REQUIRE(rounds == std::uint64_t{kThreads} * kRounds);
  REQUIRE(mutex.try_lock());
  REQUIRE(!mutex.try_lock());
}

// Sleepers are let in one after the other though nobody comes anew.
void sleepers_follow_one_another() {
  for (int repeat = 0; repeat < 200; ++repeat) {
    memx::ShortMutex mutex;
    mutex.lock();
    std::atomic<unsigned> here{0};
    std::thread owner([&] {
      while (here < 6) std::this_thread::yield();
      for (int i = 0; i < 20; ++i) std::this_thread::yield();
      mutex.unlock();
    });
    for_each_thread(6, [&](unsigned) {
      ++here;
      mutex.lock();
      mutex.unlock();
    });
    owner.join();
  }
}

}  // namespace

int main() {
  one_at_a_time();
  sleepers_follow_one_another();
}
