// Which part of time and address is shown, and where on the canvas.
class View {
  static LEFT = 78;
  static RIGHT = 14;
  static TOP = 12;
  static BOTTOM = 46;

  constructor(model) {
    this.model = model;
    this.width = this.height = 1;
    this.fit();
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
  }

  fit() {
    [this.left, this.right, this.bottom, this.top] = this.all();
  }

  // Everything, with some room above.
  all() {
    return [0, this.model.end, 0, this.model.peak * 1.06];
  }

  get plot() {
    return {
      x: View.LEFT,
      y: View.TOP,
      width: Math.max(1, this.width - View.LEFT - View.RIGHT),
      height: Math.max(1, this.height - View.TOP - View.BOTTOM),
    };
  }

  x(time) {
    return this.plot.x + (time - this.left) / (this.right - this.left) * this.plot.width;
  }

  y(address) {
    return this.plot.y + (this.top - address) / (this.top - this.bottom) * this.plot.height;
  }

  time(x) {
    return this.left + (x - this.plot.x) / this.plot.width * (this.right - this.left);
  }

  address(y) {
    return this.top - (y - this.plot.y) / this.plot.height * (this.top - this.bottom);
  }

  // Shows `factor` as much of each, with the point (x, y) of the canvas where it is.
  zoom(factor, x, y, inTime = true, inAddress = true) {
    const time = this.time(x), address = this.address(y);
    const across = inTime ? factor : 1, up = inAddress ? factor : 1;
    this.show(
      time - (time - this.left) * across, time + (this.right - time) * across,
      address - (address - this.bottom) * up, address + (this.top - address) * up,
    );
  }

  pan(dx, dy) {
    const time = -dx / this.plot.width * (this.right - this.left);
    const address = dy / this.plot.height * (this.top - this.bottom);
    this.show(this.left + time, this.right + time, this.bottom + address, this.top + address);
  }

  // A buffer in the middle, with some of what is around it.
  goTo(i) {
    const { lower, upper, offset, top, size } = this.model;
    const time = (lower[i] + upper[i]) / 2, address = (offset[i] + top[i]) / 2;
    const across = 1.5 * (upper[i] - lower[i]), up = 2 * size[i];
    this.show(time - across, time + across, address - up, address + up);
  }

  show(left, right, bottom, top) {
    const [, end, , peak] = this.all();
    [this.left, this.right] = View.within(left, right, 2, end);
    [this.bottom, this.top] = View.within(bottom, top, 16, peak);
  }

  // [low, high) neither narrower than `least` nor wider than all, moved to lie within [0, end).
  static within(low, high, least, end) {
    const span = Math.min(Math.max(high - low, Math.min(least, end)), end), middle = (low + high) / 2;
    const from = Math.min(Math.max(middle - span / 2, 0), end - span);
    return [from, from + span];
  }

  // Round moments and addresses, some 90 pixels apart.
  timeTicks() {
    const rough = (this.right - this.left) / Math.max(2, this.plot.width / 110);
    const power = 10 ** Math.floor(Math.log10(rough)), step = Math.max(1, [1, 2, 5, 10].find((k) => k * power >= rough) * power);
    return View.ticks(this.left, this.right, step);
  }

  addressTicks() {
    const rough = (this.top - this.bottom) / Math.max(2, this.plot.height / 60);
    return View.ticks(this.bottom, this.top, Math.max(1, 2 ** Math.ceil(Math.log2(rough))));
  }

  static ticks(from, to, step) {
    const ticks = [];
    for (let k = Math.ceil(from / step); k * step <= to; ++k) ticks.push(k * step);
    return ticks;
  }
}
