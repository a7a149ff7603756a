#include "memx/tlsf.h"

namespace memx {

void SizeClasses::insert(Block* block) {
  const Class c = class_of(block->bytes);
  Block*& head = heads_[c.first][c.second];
  block->list_prev = nullptr;
  block->list_next = head;
  if (head) head->list_prev = block;
  head = block;
  second_level_[c.first] |= 1u << c.second;
  first_level_ |= 1ull << c.first;
}

void SizeClasses::remove(Block* block) {
  const Class c = class_of(block->bytes);
  if (block->list_prev)
    block->list_prev->list_next = block->list_next;
  else
    heads_[c.first][c.second] = block->list_next;
  if (block->list_next) block->list_next->list_prev = block->list_prev;
  block->list_prev = block->list_next = nullptr;
  if (heads_[c.first][c.second]) return;
  second_level_[c.first] &= ~(1u << c.second);
  if (!second_level_[c.first]) first_level_ &= ~(1ull << c.first);
}

}  // namespace memx
