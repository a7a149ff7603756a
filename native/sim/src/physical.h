// Physical memory: one sparse memfd holds every device's memory and the host memory that handles are made
// of. The driver's own workers reach it through one private view of the file, whatever access a user address
// has. Everything here is called with the driver's lock held.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "oracle_shadow.h"

namespace memxsim {

constexpr int kMaxDevices = 16;
constexpr int kHost = kMaxDevices;  // the location that is not a device
constexpr uint64_t kHostPage = 4096;

constexpr uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// A piece of physical memory. It lives until its last mapping and its last handle reference are gone; work that
// is running keeps its bytes (not its accounting) a little longer.
struct Phys {
  enum class Backing { extent, anonymous, foreign, borrowed };

  int location = 0;
  uint64_t bytes = 0;
  uint64_t accounted = 0;
  char* data = nullptr;  // in the private view; null in accounting-only mode
  uint64_t file_offset = 0;
  Backing backing = Backing::extent;
  CUmemGenericAllocationHandle handle = 0;  // 0: not made by cuMemCreate
  uint32_t handle_refs = 0;
  uint32_t mappings = 0;
  CUmemAllocationProp properties{};
  std::shared_ptr<Phys> behind;  // whose bytes `borrowed` memory has now
  Shadow shadow;

  bool on_host() const { return location == kHost; }
  ~Phys();
};
using PhysRef = std::shared_ptr<Phys>;

class Store {
 public:
  // Limits in bytes; one entry a device. False if the system refuses the file or its view.
  bool open(const std::vector<uint64_t>& device_bytes, uint64_t host_bytes, bool accounting_only);

  // Null if the location has not so much left.
  PhysRef create(int location, uint64_t bytes);
  // Host memory outside the file: pinned by the driver (owned), or registered by the user (not owned).
  PhysRef create_pinned(uint64_t bytes);
  PhysRef adopt(char* data, uint64_t bytes);

  // Ends the accounting of a piece that has no owner any more.
  void retire(Phys& phys);

  uint64_t limit(int location) const { return at(location).limit; }
  uint64_t used(int location) const { return at(location).used; }
  uint64_t pinned() const { return pinned_; }
  int file() const { return file_; }
  bool accounting_only() const { return accounting_only_; }

 private:
  friend struct Phys;
  struct Area {
    uint64_t limit = 0, used = 0;
    uint64_t base = 0, span = 0, high_water = 0;  // in the file; offsets below are absolute
    std::map<uint64_t, uint64_t> free_at;              // offset -> bytes
    std::set<std::pair<uint64_t, uint64_t>> free_by_size;  // bytes, offset
  };

  Area& at(int location) { return location == kHost ? areas_.back() : areas_[location]; }
  const Area& at(int location) const { return location == kHost ? areas_.back() : areas_[location]; }
  bool reserve(int location, uint64_t accounted);
  bool take_extent(Area& area, uint64_t bytes, uint64_t* offset);
  void give_extent(Area& area, uint64_t offset, uint64_t bytes);
  void add_free(Area& area, uint64_t offset, uint64_t bytes);
  void drop_free(Area& area, std::map<uint64_t, uint64_t>::iterator position);

  int file_ = -1;
  char* view_ = nullptr;
  bool accounting_only_ = false;
  std::vector<Area> areas_;  // devices, then host
  uint64_t pinned_ = 0;
};

}  // namespace memxsim
