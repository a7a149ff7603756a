#include "decoder.h"

#include <algorithm>

namespace memx::plan {

Decoder::Decoder(const Model& model) : model_(model), state_(model, kNever), choose_(model) {}

Bytes Decoder::decode(const std::vector<double>& priority, Tie tie, Stop& stop) {
  state_.reset();
  state_.start();
  for (std::size_t left = model_.count(); left > 0;) {
    if (stop()) return kNever;
    const Index section = choose_(state_, tie, 0, model_.sections - 1);
    const Units floor = state_.floor(section);
    Index chosen = -1;
    Units next = kNever;
    for (const Index b : model_.cover[section]) {
      if (state_.least(b) == floor && (chosen < 0 || priority[b] > priority[chosen])) chosen = b;
      next = std::min(next, state_.least(b));
    }
    if (chosen >= 0) {
      state_.place(chosen);
      --left;
    } else {
      state_.raise(section, next);
    }
  }
  Bytes height = 0;
  for (std::size_t b = 0; b < model_.count(); ++b) {
    height = std::max(height, state_.offset(static_cast<Index>(b)) * model_.unit + model_.bytes[b]);
  }
  return height;
}

double Decoder::share_above(Bytes height) const {
  Index above = 0;
  for (Index s = 0; s < model_.sections; ++s) above += state_.floor(s) * model_.unit > height;
  return static_cast<double>(above) / static_cast<double>(model_.sections);
}

}  // namespace memx::plan
