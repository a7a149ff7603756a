// User objects: reference counts whose end calls a function of the program, by which it learns that graphs which
// hold references are gone. With the driver's lock held.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

namespace memxsim {

struct UserObject {
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  uint64_t references = 0;
  uint64_t programs = 0;  // of them, those that the program owns itself
};

UserObject* make_user_object(void* data, CUhostFn destroy, unsigned references);
UserObject* user_object_from(const void* handle);
// At zero the object is gone, and its function is called by the thread that calls host functions.
void release_user_object(UserObject& object, uint64_t count);

// The references that a graph or an executable graph owns; a copy owns as many of its own.
class UserReferences {
 public:
  UserReferences() = default;
  UserReferences(const UserReferences& other);
  UserReferences& operator=(const UserReferences&) = delete;
  ~UserReferences();

  // Takes over references that somebody has counted already.
  void adopt(UserObject& object, uint64_t count) { counts_[&object] += count; }
  void add(const UserReferences& other);
  bool release(UserObject& object, uint64_t count);  // false: it has fewer
  bool empty() const { return counts_.empty(); }

 private:
  std::map<UserObject*, uint64_t> counts_;
};

}  // namespace memxsim
