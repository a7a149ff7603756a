// Rectangles by where they are: a packed R-tree. Rectangle i spans [lower[i], upper[i]) and [bottom[i], top[i]).
class Rectangles {
  static WIDTH = 16;

  constructor(lower, upper, bottom, top) {
    const count = lower.length, width = Rectangles.WIDTH;
    this.count = count;
    this.order = Uint32Array.from({ length: count }, (_, i) => i);
    // Upright slices of about as many leaves as each has leaves in it.
    const slice = width * Math.max(1, Math.ceil(Math.sqrt(count / width)));
    const middle = (low, high) => Float64Array.from(low, (value, i) => value + high[i]);
    const across = middle(lower, upper), up = middle(bottom, top);
    this.order.sort((a, b) => across[a] - across[b]);
    for (let from = 0; from < count; from += slice) {
      this.order.subarray(from, from + slice).sort((a, b) => up[a] - up[b]);
    }
    const leaves = new Float64Array(4 * count);
    this.order.forEach((i, at) => leaves.set([lower[i], bottom[i], upper[i], top[i]], 4 * at));
    this.levels = [leaves];
    while (this.levels.at(-1).length > 4) this.levels.push(Rectangles.parents(this.levels.at(-1), width));
  }

  static parents(boxes, width) {
    const count = boxes.length / 4, parents = new Float64Array(4 * Math.ceil(count / width));
    for (let at = 0; at < parents.length / 4; ++at) {
      const box = [Infinity, Infinity, -Infinity, -Infinity];
      for (let child = at * width; child < Math.min(count, (at + 1) * width); ++child) {
        for (const side of [0, 1]) {
          box[side] = Math.min(box[side], boxes[4 * child + side]);
          box[side + 2] = Math.max(box[side + 2], boxes[4 * child + side + 2]);
        }
      }
      parents.set(box, 4 * at);
    }
    return parents;
  }

  // Calls `visit` with every rectangle that shares area with the one given.
  search(left, bottom, right, top, visit) {
    if (this.count === 0) return;
    const stack = [[this.levels.length - 1, 0]];
    while (stack.length > 0) {
      const [level, at] = stack.pop(), boxes = this.levels[level], box = 4 * at;
      if (boxes[box] >= right || boxes[box + 2] <= left || boxes[box + 1] >= top || boxes[box + 3] <= bottom) continue;
      if (level === 0) {
        visit(this.order[at]);
        continue;
      }
      const end = Math.min(this.levels[level - 1].length / 4, (at + 1) * Rectangles.WIDTH);
      for (let child = at * Rectangles.WIDTH; child < end; ++child) stack.push([level - 1, child]);
    }
  }
}
