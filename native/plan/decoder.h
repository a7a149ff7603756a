// From priorities to a layout: the first descent of the tree search, without a capacity.
#pragma once

#include <vector>

#include "choose.h"
#include "stop.h"

namespace memx::plan {

class Decoder {
 public:
  explicit Decoder(const Model& model);

  // In the lowest section the candidate with the highest priority, while there is one; else the floor rises
  // to the next least offset. Returns the height; kNever if stopped.
  Bytes decode(const std::vector<double>& priority, Tie tie, Stop& stop);

  Units offset(Index b) const { return state_.offset(b); }
  // How much of the sections ends above `height`: a finer measure than the height itself.
  double share_above(Bytes height) const;

 private:
  const Model& model_;
  State state_;
  Chooser choose_;
};

}  // namespace memx::plan
