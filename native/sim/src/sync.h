// A mutex that spins a little before it sleeps, and its condition variable. Every critical section of the
// simulator is a few hundred nanoseconds, so a futex sleep would cost more than the wait.
#pragma once

#include <pthread.h>

#include <mutex>

namespace memxsim {

class Mutex {
 public:
  Mutex() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }
  pthread_mutex_t* native() { return &mutex_; }

 private:
  pthread_mutex_t mutex_;
};

using Lock = std::unique_lock<Mutex>;

class Cond {
 public:
  Cond() { pthread_cond_init(&cond_, nullptr); }
  ~Cond() { pthread_cond_destroy(&cond_); }
  Cond(const Cond&) = delete;
  Cond& operator=(const Cond&) = delete;
  void wait(Lock& lock) { pthread_cond_wait(&cond_, lock.mutex()->native()); }
  void notify_one() { pthread_cond_signal(&cond_); }
  void notify_all() { pthread_cond_broadcast(&cond_); }

 private:
  pthread_cond_t cond_;
};

}  // namespace memxsim
