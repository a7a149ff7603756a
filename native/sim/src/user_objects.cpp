#include "user_objects.h"

#include <memory>
#include <unordered_map>

#include "stream.h"

namespace memxsim {

namespace {

std::unordered_map<const void*, std::unique_ptr<UserObject>>& objects() {
  static auto* instance = new std::unordered_map<const void*, std::unique_ptr<UserObject>>;
  return *instance;
}

}  // namespace

UserObject* make_user_object(void* data, CUhostFn destroy, unsigned references) {
  auto made = std::make_unique<UserObject>(UserObject{data, destroy, references, references});
  UserObject* object = made.get();
  objects().emplace(object, std::move(made));
  return object;
}

UserObject* user_object_from(const void* handle) {
  const auto found = objects().find(handle);
  return found == objects().end() ? nullptr : found->second.get();
}

void release_user_object(UserObject& object, uint64_t count) {
  object.references -= count;
  if (object.references) return;
  call_later(object.destroy, object.data);
  objects().erase(&object);
}

UserReferences::UserReferences(const UserReferences& other) { add(other); }

UserReferences::~UserReferences() {
  for (const auto& [object, count] : counts_) release_user_object(*object, count);
}

void UserReferences::add(const UserReferences& other) {
  for (const auto& [object, count] : other.counts_) {
    object->references += count;
    counts_[object] += count;
  }
}

bool UserReferences::release(UserObject& object, uint64_t count) {
  const auto found = counts_.find(&object);
  if (found == counts_.end() || found->second < count) return false;
  found->second -= count;
  if (found->second == 0) counts_.erase(found);
  release_user_object(object, count);
  return true;
}

}  // namespace memxsim
