// Drawing: the buffers as pixels, at whose speed no number of them matters much; the rest with the canvas' own means.
class Painter {
  constructor(canvas, over, model, view) {
    Object.assign(this, { canvas, over, model, view });
    this.ground = canvas.getContext("2d");
    this.front = over.getContext("2d");
    this.pixels = new Uint32Array(0);
    this.recolour("size", () => true);
  }

  // Takes the theme's colours, and each buffer's; those that `bright` refuses nearly vanish.
  recolour(by, bright) {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(`--${name}`).trim();
    this.theme = Object.fromEntries(
      ["ground", "plot", "edge", "ink", "soft", "accent", "alive", "height", "capacity", "grid"].map((n) => [n, named(n)]),
    );
    const plot = rgb(this.theme.plot), known = new Map();
    this.colours = new Uint32Array(this.model.count);
    this.dark = new Uint8Array(this.model.count);
    for (let i = 0; i < this.model.count; ++i) {
      const name = this.model.colour(i, by), faint = !bright(i), key = name + faint;
      if (!known.has(key)) {
        const colour = faint ? mix(plot, rgb(name), 0.18) : rgb(name);
        known.set(key, [pixel(colour), colour[0] * 0.3 + colour[1] * 0.59 + colour[2] * 0.11 < 140]);
      }
      [this.colours[i], this.dark[i]] = known.get(key);
    }
  }

  resize(width, height) {
    this.ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.over]) {
      canvas.width = Math.round(width * this.ratio);
      canvas.height = Math.round(height * this.ratio);
    }
    this.view.resize(width, height);
  }

  draw() {
    const context = this.ground, { width, height } = this.view;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.theme.ground;
    context.fillRect(0, 0, width, height);
    const labels = this.drawBuffers(context);
    this.drawAxes(context);
    const { x, y, width: w, height: h } = this.view.plot;
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    this.drawLabels(context, labels);
    this.drawLines(context);
    context.restore();
    context.strokeStyle = this.theme.edge;
    context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  }

  // Returns the buffers that have room for their id, and where.
  drawBuffers(context) {
    const { view, model, ratio } = this, plot = view.plot;
    const width = Math.max(1, Math.round(plot.width * ratio)), height = Math.max(1, Math.round(plot.height * ratio));
    if (this.pixels.length !== width * height || this.image.width !== width) {
      this.image = new ImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const pixels = this.pixels.fill(pixel(rgb(this.theme.plot))), labels = [];
    const across = width / (view.right - view.left), up = height / (view.top - view.bottom);
    model.index.search(view.left, view.bottom, view.right, view.top, (i) => {
      let x = Math.max(0, Math.round((model.lower[i] - view.left) * across));
      let right = Math.min(width, Math.round((model.upper[i] - view.left) * across));
      let y = Math.max(0, Math.round((view.top - model.top[i]) * up));
      let bottom = Math.min(height, Math.round((view.top - model.offset[i]) * up));
      // What is thinner than a pixel still has one; what has room leaves a seam to its neighbours.
      if (right <= x) x = Math.min(x, width - 1), right = x + 1;
      else if (right - x > 3) --right;
      if (bottom <= y) y = Math.min(y, height - 1), bottom = y + 1;
      else if (bottom - y > 3) ++y;
      const colour = this.colours[i];
      for (let row = y * width; row < bottom * width; row += width) pixels.fill(colour, row + x, row + right);
      if (right - x > 46 * ratio && bottom - y > 15 * ratio) labels.push([i, x, y, right, bottom]);
    });
    context.putImageData(this.image, Math.round(plot.x * ratio), Math.round(plot.y * ratio));
    return labels;
  }

  drawLabels(context, labels) {
    const { x: left, y: top } = this.view.plot;
    labels.sort((a, b) => (b[3] - b[1]) * (b[4] - b[2]) - (a[3] - a[1]) * (a[4] - a[2]));
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const [i, x, y, right, bottom] of labels.slice(0, 300)) {
      const room = (right - x) / this.ratio - 10, wide = context.measureText("0").width;
      const text = String(this.model.ids[i]), fits = Math.max(1, Math.floor(room / wide));
      context.fillStyle = this.dark[i] ? "#ffffffe0" : "#000000d0";
      const shown = text.length <= fits ? text : text.slice(0, fits - 1) + "…";
      context.fillText(shown, left + x / this.ratio + 5, top + (y + bottom) / 2 / this.ratio);
    }
  }

  drawAxes(context) {
    const { view, theme } = this, { x, y, width, height } = view.plot;
    context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    context.fillStyle = theme.soft;
    context.strokeStyle = theme.grid;
    context.lineWidth = 1;
    context.beginPath();
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of view.timeTicks()) {
      const at = Math.round(view.x(tick)) + 0.5;
      context.moveTo(at, y);
      context.lineTo(at, y + height);
      const text = this.model.moment(tick), half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(at, view.width - half - 2), y + height + 6);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of view.addressTicks()) {
      const at = Math.round(view.y(tick)) + 0.5;
      context.moveTo(x, at);
      context.lineTo(x + width, at);
      context.fillText(tick === 0 ? "0" : shortBytes(tick), x - 7, at);
    }
    context.stroke();
    context.fillStyle = theme.ink;
    context.textAlign = "center";
    context.textBaseline = "bottom";
    context.fillText(this.model.time, x + width / 2, view.height - 4);
    context.save();
    context.translate(13, y + height / 2);
    context.rotate(-Math.PI / 2);
    context.textBaseline = "middle";
    context.fillText("address (bytes)", 0, 0);
    context.restore();
  }

  drawLines(context) {
    const { model, view, theme } = this, { x, width } = view.plot;
    const stroke = (path, colour, dash, thick) => {
      context.setLineDash([]);
      context.strokeStyle = theme.plot + "b0";
      context.lineWidth = thick + 2.5;
      context.stroke(path);
      context.setLineDash(dash);
      context.strokeStyle = colour;
      context.lineWidth = thick;
      context.stroke(path);
      context.setLineDash([]);
    };
    const level = (bytes, colour, dash) => {
      const path = new Path2D(), at = Math.round(view.y(bytes));
      path.moveTo(x, at);
      path.lineTo(x + width, at);
      stroke(path, colour, dash, 2);
    };
    if (model.capacity !== null) level(model.capacity, theme.capacity, [2, 4]);
    level(model.height, theme.height, []);
    level(model.bound, theme.alive, [7, 5]);
    stroke(this.alive(), theme.alive, [], 2);
  }

  // The bytes alive, as steps; where many steps share a column of pixels only their least and most.
  alive() {
    const { model, view } = this, times = model.load_times, bytes = model.load_bytes, path = new Path2D();
    const y = (value) => Math.round(view.y(value));
    let low = 0;
    for (let high = times.length; low < high;) {
      const middle = (low + high) >> 1;
      if (times[middle] <= view.left) low = middle + 1; else high = middle;
    }
    let k = Math.max(0, low - 1), column = -Infinity, least = 0, most = 0, last = 0, started = false;
    const flush = () => {
      if (!started) return;
      for (const value of [least, most, last]) path.lineTo(column, y(value));
    };
    for (; k < times.length && (k === 0 || times[k - 1] <= view.right); ++k) {
      const at = Math.round(view.x(times[k]));
      if (at !== column) {
        flush();
        if (started) path.lineTo(at, y(last));
        else path.moveTo(at, y(bytes[k]));
        [column, least, most, started] = [at, bytes[k], bytes[k], true];
      }
      [least, most, last] = [Math.min(least, bytes[k]), Math.max(most, bytes[k]), bytes[k]];
    }
    flush();
    return path;
  }

  // Outlines of what the pointer is on and of what was chosen.
  drawOver(hovered, chosen) {
    const context = this.front, { view, model, theme } = this, plot = view.plot;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, view.width, view.height);
    context.save();
    context.beginPath();
    context.rect(plot.x, plot.y, plot.width, plot.height);
    context.clip();
    for (const [i, colour, thick] of [[chosen, theme.accent, 3], [hovered, theme.ink, 1.5]]) {
      if (i === null) continue;
      const x = view.x(model.lower[i]), y = view.y(model.top[i]);
      const width = Math.max(2, view.x(model.upper[i]) - x), height = Math.max(2, view.y(model.offset[i]) - y);
      context.lineWidth = thick + 2;
      context.strokeStyle = theme.ground;
      context.strokeRect(x, y, width, height);
      context.lineWidth = thick;
      context.strokeStyle = colour;
      context.strokeRect(x, y, width, height);
    }
    context.restore();
  }
}
