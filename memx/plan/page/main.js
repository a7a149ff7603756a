// The page: what pointer, keys, search and switches do.
const model = new Model(JSON.parse(document.getElementById("data").textContent));
const element = (id) => document.getElementById(id);
const canvas = element("layout"), tip = element("tip"), query = element("query");
const view = new View(model);
const state = { by: model.colour_by, hovered: null, chosen: null, matches: [], match: 0, tag: null };

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const painter = new Painter(canvas, element("over"), model, view);
const frames = [];
let due = false;

function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const before = performance.now();
    painter.draw();
    painter.drawOver(state.hovered, state.chosen);
    frames.push(performance.now() - before);
    if (frames.length > 1000) frames.shift();
  });
}

function recolour() {
  const found = new Set(state.matches);
  painter.recolour(state.by, (i) => {
    return (state.tag === null || model.tag[i] === state.tag) && (found.size === 0 || found.has(i));
  });
  redraw();
}

function rows(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([term, text]) => {
    const name = document.createElement("dt"), value = document.createElement("dd");
    name.textContent = term;
    value.textContent = text;
    return [name, value];
  }));
}

function facts(i) {
  const tag = model.tags[model.tag[i]];
  return [
    ["size", exactBytes(model.size[i])],
    ["alive", `${model.moment(model.lower[i])} to ${model.moment(model.upper[i])}, for ${model.upper[i] - model.lower[i]}`],
    ["offset", exactBytes(model.offset[i])],
    ["end", exactBytes(model.top[i])],
    ...(tag === null || model.tags.length === 0 ? [] : [["tag", tag]]),
  ];
}

function choose(i) {
  state.chosen = i;
  rows(element("details"), i === null ? [["none", "click one, or find it"]] : [["id", String(model.ids[i])], ...facts(i)]);
  painter.drawOver(state.hovered, i);
}

function reveal(i) {
  choose(i);
  view.goTo(i);
  redraw();
}

// The buffer at a point of the canvas, or the nearest within some pixels.
function bufferAt(x, y) {
  const { x: left, y: top, width, height } = view.plot, reach = 3;
  if (x < left || y < top || x > left + width || y > top + height) return null;
  const time = view.time(x), address = view.address(y);
  let best = null, least = Infinity;
  model.index.search(view.time(x - reach), view.address(y + reach), view.time(x + reach), view.address(y - reach), (i) => {
    const across = Math.max(model.lower[i] - time, time - model.upper[i], 0) / (view.right - view.left) * width;
    const up = Math.max(model.offset[i] - address, address - model.top[i], 0) / (view.top - view.bottom) * height;
    const far = Math.hypot(across, up);
    if (far < least) [best, least] = [i, far];
  });
  return best;
}

function hover(x, y) {
  const i = bufferAt(x, y);
  if (i !== state.hovered) {
    state.hovered = i;
    painter.drawOver(i, state.chosen);
    if (i !== null) {
      const name = document.createElement("b"), list = document.createElement("dl");
      name.textContent = String(model.ids[i]);
      rows(list, facts(i));
      tip.replaceChildren(name, list);
    }
  }
  tip.hidden = i === null;
  if (i !== null) {
    const room = canvas.getBoundingClientRect();
    tip.style.left = `${x + 18 + tip.offsetWidth > room.width ? Math.max(0, x - 14 - tip.offsetWidth) : x + 18}px`;
    tip.style.top = `${Math.max(0, Math.min(y + 14, room.height - tip.offsetHeight))}px`;
  }
}

const pointer = { down: null, moved: false };
canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  pointer.down = [event.offsetX, event.offsetY];
  pointer.moved = false;
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  const { offsetX: x, offsetY: y } = event;
  if (pointer.down === null) return hover(x, y);
  const dx = x - pointer.down[0], dy = y - pointer.down[1];
  if (!pointer.moved && Math.hypot(dx, dy) < 4) return;
  pointer.moved = true;
  pointer.down = [x, y];
  tip.hidden = true;
  canvas.classList.add("moving");
  view.pan(dx, dy);
  redraw();
});
canvas.addEventListener("pointerup", (event) => {
  if (pointer.down !== null && !pointer.moved) choose(bufferAt(event.offsetX, event.offsetY));
  pointer.down = null;
  canvas.classList.remove("moving");
});
canvas.addEventListener("pointercancel", () => {
  pointer.down = null;
  canvas.classList.remove("moving");
});
canvas.addEventListener("pointerleave", () => {
  tip.hidden = true;
  state.hovered = null;
  painter.drawOver(null, state.chosen);
});
canvas.addEventListener("dblclick", (event) => {
  const i = bufferAt(event.offsetX, event.offsetY);
  if (i !== null) reveal(i);
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  // With Shift some browsers turn the wheel sideways.
  const turned = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 30 : 1);
  view.zoom(Math.exp(Math.max(-300, Math.min(300, turned)) * 0.002), event.offsetX, event.offsetY, !event.altKey, !event.shiftKey);
  hover(event.offsetX, event.offsetY);
  redraw();
}, { passive: false });

function zoomMiddle(factor) {
  const { x, y, width, height } = view.plot;
  view.zoom(factor, x + width / 2, y + height / 2);
  redraw();
}

function fit() {
  view.fit();
  redraw();
}

function step(by) {
  if (model.count === 0) return;
  const order = model.inOrder();
  const at = state.chosen === null ? (by > 0 ? 0 : model.count - 1) : model.place[state.chosen] + by;
  const i = order[(at + model.count) % model.count];
  choose(i);
  const hidden = model.upper[i] <= view.left || model.lower[i] >= view.right;
  if (hidden || model.top[i] <= view.bottom || model.offset[i] >= view.top) view.goTo(i);
  redraw();
}

const KEYS = {
  ArrowLeft: () => view.pan(80, 0), ArrowRight: () => view.pan(-80, 0),
  ArrowUp: () => view.pan(0, 60), ArrowDown: () => view.pan(0, -60),
  "+": () => zoomMiddle(1 / 1.4), "=": () => zoomMiddle(1 / 1.4), "-": () => zoomMiddle(1.4),
  0: fit, Home: fit,
  n: () => step(1), p: () => step(-1),
  Enter: () => state.chosen === null || reveal(state.chosen),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
  redraw();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return letGo();
  if (event.target === query) return;
  if (event.key === "/") {
    event.preventDefault();
    query.select();
  } else if (event.key === "c" && model.tags.length > 0) {
    colourBy(state.by === "size" ? "tag" : "size");
  } else if (event.key === "d") {
    turnTheme();
  }
});

function letGo() {
  query.value = "";
  state.tag = null;
  search();
  choose(null);
  listTags();
}

// -- search ----------------------------------------------------------------------------------------------------------

function search() {
  state.matches = model.find(query.value);
  state.match = 0;
  recolour();
  showMatch();
}

function showMatch() {
  const { matches, match } = state;
  element("matches").textContent =
    matches.length > 0 ? `${match + 1} of ${matches.length.toLocaleString("en")}` : query.value.trim() ? "no such buffer" : "";
  if (matches.length > 0) reveal(matches[match]);
}

query.addEventListener("input", search);
element("search").addEventListener("submit", (event) => event.preventDefault());
query.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || state.matches.length === 0) return;
  event.preventDefault();
  state.match = (state.match + (event.shiftKey ? -1 : 1) + state.matches.length) % state.matches.length;
  showMatch();
});

// -- colours ---------------------------------------------------------------------------------------------------------

function colourBy(by) {
  state.by = by;
  for (const radio of document.getElementsByName("colour")) radio.checked = radio.value === by;
  element("ramp").hidden = by !== "size";
  element("tags").hidden = by !== "tag";
  if (by === "size") state.tag = null;
  listTags();
  recolour();
}

function listTags() {
  element("tags").replaceChildren(...model.tags.map((tag, k) => {
    const item = document.createElement("li"), button = document.createElement("button");
    const swatch = document.createElement("i"), name = document.createElement("span"), much = document.createElement("small");
    swatch.style.background = model.tag_colours[k % model.tag_colours.length];
    name.textContent = tag ?? "without a tag";
    much.textContent = shortBytes(model.tag_peaks[k]);
    much.title = "the most alive at once";
    button.type = "button";
    button.setAttribute("aria-pressed", String(state.tag === k));
    button.append(swatch, name, much);
    button.addEventListener("click", () => {
      state.tag = state.tag === k ? null : k;
      listTags();
      recolour();
    });
    item.append(button);
    return item;
  }));
}

function turnTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  recolour();
}

for (const radio of document.getElementsByName("colour")) {
  radio.disabled = radio.value === "tag" && model.tags.length === 0;
  radio.addEventListener("change", () => colourBy(radio.value));
}
element("closer").addEventListener("click", () => zoomMiddle(1 / 1.4));
element("farther").addEventListener("click", () => zoomMiddle(1.4));
element("fit").addEventListener("click", fit);
element("theme").addEventListener("click", turnTheme);

// -- legend ----------------------------------------------------------------------------------------------------------

function legend() {
  const over = model.bound > 0 ? ` (${(model.height / model.bound).toFixed(4)} × the bound)` : "";
  element("summary").textContent = model.summary ||
    `${model.count.toLocaleString("en")} buffers in ${exactBytes(model.height)}${over}, ${model.method}: ` +
    (model.optimal ? "no layout is lower" : "a lower layout is not ruled out");
  const lines = [
    ["alive", shortBytes(model.bound) + " at most", "var(--alive)", "solid"],
    ["bound", exactBytes(model.bound), "var(--alive)", "dashed"],
    ["height", exactBytes(model.height), "var(--height)", "solid"],
    ...(model.capacity === null ? [] : [["capacity", exactBytes(model.capacity), "var(--capacity)", "dotted"]]),
  ];
  rows(element("lines"), lines);
  element("lines").querySelectorAll("dt").forEach((term, k) => {
    term.style.setProperty("--colour", lines[k][2]);
    term.style.setProperty("--line", lines[k][3]);
  });
  const bar = document.querySelector("#ramp canvas"), context = bar.getContext("2d");
  for (let x = 0; x < bar.width; ++x) {
    context.fillStyle = model.ramp(x / (bar.width - 1));
    context.fillRect(x, 0, 1, bar.height);
  }
  const [least, most] = model.sizes;
  element("scale").replaceChildren(...[least, Math.sqrt(least * most), most].map((size) => {
    const mark = document.createElement("span");
    mark.textContent = shortBytes(Math.round(size));
    return mark;
  }));
}

function resize() {
  painter.resize(element("plot").clientWidth, element("plot").clientHeight);
  redraw();
}

resize();
new ResizeObserver(resize).observe(element("plot"));
legend();
choose(null);
colourBy(state.by);
// For scripts: what is shown, what is where, and how long the last frames took, in milliseconds.
window.memxLayout = { model, view, state, frames, bufferAt };
