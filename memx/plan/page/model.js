// What the page shows: the buffers, their colours, and numbers as people read them.
class Model {
  constructor(data) {
    Object.assign(this, data);
    for (const column of ["lower", "upper", "size", "offset"]) this[column] = Float64Array.from(data[column]);
    this.count = this.lower.length;
    this.top = this.offset.map((offset, i) => offset + this.size[i]);
    this.begin = BigInt(data.begin);
    this.index = new Rectangles(this.lower, this.upper, this.offset, this.top);
    this.end = this.upper.reduce((most, value) => Math.max(most, value), 1);
    this.peak = Math.max(this.height, this.bound, this.capacity <= 1.5 * this.height ? this.capacity : 0, 1);
    let least = Infinity, most = 0;
    for (const size of this.size) { least = Math.min(least, size); most = Math.max(most, size); }
    this.sizes = this.count ? [least, most] : [1, 1];
    this.byBirth = null;
  }

  // Buffers in order of birth and address, for the keys.
  inOrder() {
    if (this.byBirth === null) {
      this.byBirth = Uint32Array.from({ length: this.count }, (_, i) => i);
      this.byBirth.sort((a, b) => this.lower[a] - this.lower[b] || this.offset[a] - this.offset[b]);
      this.place = new Uint32Array(this.count);
      this.byBirth.forEach((i, at) => { this.place[i] = at; });
    }
    return this.byBirth;
  }

  // Indices of buffers whose id holds the text: first those that are it, then those that begin with it.
  find(text) {
    const wanted = text.trim().toLowerCase();
    if (wanted === "") return [];
    const ranks = [[], [], []];
    this.ids.forEach((id, i) => {
      const name = String(id).toLowerCase(), at = name.indexOf(wanted);
      if (at >= 0) ranks[name === wanted ? 0 : at === 0 ? 1 : 2].push(i);
    });
    return ranks.flat();
  }

  // Where a size is between the least and the most, by logarithm.
  shade(size) {
    const [least, most] = this.sizes;
    return least === most ? 0.5 : Math.log(size / least) / Math.log(most / least);
  }

  colour(i, by) {
    return by === "tag" ? this.tag_colours[this.tag[i] % this.tag_colours.length] : this.ramp(this.shade(this.size[i]));
  }

  ramp(share) {
    const at = Math.min(Math.max(share, 0), 1) * (this.ramp_colours.length - 1), low = Math.floor(at);
    const from = rgb(this.ramp_colours[low]), to = rgb(this.ramp_colours[Math.min(low + 1, this.ramp_colours.length - 1)]);
    return "#" + from.map((value, k) => Math.round(value + (to[k] - value) * (at - low)).toString(16).padStart(2, "0")).join("");
  }

  // A moment as the input counts it; beyond 2^53 too.
  moment(value) {
    return (this.begin + BigInt(Math.round(value))).toString();
  }
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// As a pixel of ImageData on a little-endian machine.
function pixel([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function mix(one, other, share) {
  return one.map((value, k) => Math.round(value + (other[k] - value) * share));
}

const UNITS = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

function shortBytes(value) {
  const unit = UNITS.find(([, bytes]) => Math.abs(value) >= bytes);
  return unit ? `${Number((value / unit[1]).toPrecision(4))} ${unit[0]}` : `${value} B`;
}

function exactBytes(value) {
  return value < 1024 ? `${value} B` : `${shortBytes(value)} (${value.toLocaleString("en")}\u00a0B)`;
}
