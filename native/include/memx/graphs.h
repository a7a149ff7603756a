// Which captured graphs are gone. A user object that a graph and all its copies hold says so when the last of them is
// destroyed, from whatever thread, where no driver call is allowed.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <vector>

#include "memx/driver.h"
#include "memx/points.h"

namespace memx {

class GraphWatch {
 public:
  static constexpr Slot kNobody = ~Slot{0};

  explicit GraphWatch(Device& device) : device_(device), list_(std::make_shared<List>()) {}
  // The graph that the stream is captured into; 0 for `id` if the driver does not say, or cannot watch graphs.
  struct Capture {
    unsigned long long id = 0;
    CUgraph graph = nullptr;
  };
  Capture capture_of(CUstream stream) noexcept;
  // Lets the graph say `slot` when it is gone, unless the driver refuses.
  void watch(CUgraph graph, Slot slot) noexcept;
  // Those that are gone since the last call.
  void take_gone(std::vector<Slot>& out);

 private:
  struct Note;
  // Outlives the watch as long as a graph does.
  struct List {
    std::atomic<Note*> head{nullptr};
    ~List();
  };
  struct Note {
    std::shared_ptr<List> list;
    Slot slot;
    Note* next = nullptr;
  };
  static void gone(void* note);

  Device& device_;
  std::shared_ptr<List> list_;
};

}  // namespace memx
