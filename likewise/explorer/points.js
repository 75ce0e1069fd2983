// A map of many points on a canvas, which can be moved and zoomed, and points clicked and selected. Each frame is written
// pixel by pixel into one image, which takes a few milliseconds for 50,000 points in any browser; rings and outlines are
// drawn over it. pointMap(stage, {hovered(i), chosen(i), selected(places)}) takes callbacks, and returns an object with
// which the page controls the map.
"use strict";

const EDGE = 36; // pixels around the points, for the buttons
const REACH = 14; // pixels around a point in which a click counts as a click on it
const OPAQUE = 0.88;
const FADED = 0.1;
const MANY = 20000; // more points than this are drawn smaller, and coarser while they move
const RESTING = 150; // milliseconds without movement before the map is drawn sharply again

function pointMap(stage, { hovered, chosen, selected }) {
  const words = "Arrow keys go from item to item, Enter shows neighbours, plus and minus zoom, zero shows everything.";
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": `Map of items. ${words}` });
  const tools = element("div", { class: "tools" });
  stage.append(canvas, tools);
  const pen = canvas.getContext("2d");
  const view = { scale: 1, x: 0, y: 0 }; // zoom and offset of the unit square, in units of its side
  let points = new Float32Array(0); // x and y of each point in 0..1
  let paints = new Uint32Array(0); // the colour of each point, in the format of the image's pixels
  let squares = null; // 1 for points that are drawn as squares, or null if none is
  let shown = null; // 1 for points that are not faded, or null for all
  let picked = null; // 1 for points in the selection, or null without a selection
  let here = null, looked = null, marks = [], lasso = null, selecting = false;
  let width = 0, height = 0, side = 0, picture = null, pixels = null, asked = 0, moving = 0;

  const count = () => points.length / 2;
  const left = () => (width - side) / 2, top = () => (height - side) / 2;
  const atX = (i) => left() + (points[2 * i] * view.scale + view.x) * side;
  const atY = (i) => top() + (points[2 * i + 1] * view.scale + view.y) * side;
  canvas.placeOf = (i) => ({ x: atX(i), y: atY(i) }); // in CSS pixels from the corner of the canvas
  const isOffered = (i) => (!shown || shown[i] === 1) && (!picked || picked[i] === 1);

  function invalidate() {
    asked ||= requestAnimationFrame(() => { asked = 0; draw(); });
  }

  function measure() {
    const dense = moving && count() > MANY ? 1 : window.devicePixelRatio || 1; // coarser while it moves
    [width, height] = [stage.clientWidth, stage.clientHeight];
    side = Math.max(1, Math.min(width, height) - 2 * EDGE);
    const [across, down] = [Math.max(1, Math.round(width * dense)), Math.max(1, Math.round(height * dense))];
    if (canvas.width !== across || canvas.height !== down || !picture) {
      [canvas.width, canvas.height] = [across, down];
      picture = pen.createImageData(across, down);
      pixels = new Uint32Array(picture.data.buffer);
    }
    return dense;
  }

  function draw() {
    const dense = measure();
    const began = performance.now();
    const paper = packed("var(--raised)");
    pixels.fill(paper);
    const radius = dense * Math.min(7, (count() > MANY ? 1.6 : count() > 4000 ? 2.2 : 3.4) * view.scale ** 0.35);
    const scale = view.scale * side * dense;
    const [ox, oy] = [(left() + view.x * side) * dense, (top() + view.y * side) * dense];
    const [wide, high] = [canvas.width, canvas.height];
    for (const offered of shown || picked ? [false, true] : [true]) { // faded points are drawn first, below the others
      const shapes = [
        stamp(radius, offered ? OPAQUE : FADED, Math.hypot),
        stamp(0.9 * radius, offered ? OPAQUE : FADED, (x, y) => Math.max(Math.abs(x), Math.abs(y))),
      ];
      for (let i = 0, n = count(); i < n; i++) {
        if (offered !== isOffered(i)) continue;
        const x = Math.round(ox + points[2 * i] * scale), y = Math.round(oy + points[2 * i + 1] * scale);
        if (x < -radius || y < -radius || x > wide + radius || y > high + radius) continue;
        put(shapes[squares ? squares[i] : 0], x, y, paints[i], wide, high);
      }
    }
    pen.putImageData(picture, 0, 0);
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    const ink = getComputedStyle(canvas).getPropertyValue("--ink");
    Object.assign(pen, { strokeStyle: ink, fillStyle: ink, lineWidth: 1.5 });
    for (const i of marks) ring(i, radius / dense + 3);
    if (here != null) ring(here, radius / dense + 5);
    pen.lineWidth = 3;
    if (looked != null) ring(looked, radius / dense + 6);
    if (lasso) outline();
    canvas.classList.toggle("still", view.scale === 1 && !selecting);
    canvas.drawn = { milliseconds: performance.now() - began, points: count() };
  }

  // Draws one point. Red and blue are blended in one product, green in another; shares are in 256ths.
  function put({ across, down, shares }, x, y, paint, wide, high) {
    const redBlue = paint & 0xff00ff, green = paint & 0xff00;
    for (let j = 0; j < shares.length; j++) {
      const px = x + across[j], py = y + down[j];
      if (px < 0 || py < 0 || px >= wide || py >= high) continue;
      const at = py * wide + px, below = pixels[at], share = shares[j], rest = 256 - share;
      const both = (Math.imul(redBlue, share) + Math.imul(below & 0xff00ff, rest)) >>> 8;
      const one = (Math.imul(green, share) + Math.imul(below & 0xff00, rest)) >>> 8;
      pixels[at] = 0xff000000 | (both & 0xff00ff) | (one & 0xff00);
    }
  }

  function ring(i, radius) {
    pen.beginPath();
    pen.arc(atX(i), atY(i), radius, 0, 7);
    pen.stroke();
  }

  function outline() {
    pen.beginPath();
    for (const [x, y] of lasso) pen.lineTo(x, y);
    pen.closePath();
    Object.assign(pen, { lineWidth: 1.5, globalAlpha: 0.12 });
    pen.fill();
    pen.globalAlpha = 1;
    pen.stroke();
  }

  function nearest({ x, y }, reach = REACH) {
    let best = null, least = reach * reach;
    for (let i = 0, n = count(); i < n; i++) {
      const away = (atX(i) - x) ** 2 + (atY(i) - y) ** 2;
      if (away < least && isOffered(i)) [best, least] = [i, away];
    }
    return best;
  }

  // Goes to the nearest item that lies more in the direction of the arrow than to its side.
  function step(dx, dy) {
    if (here == null) return hover(nearest({ x: width / 2, y: height / 2 }, Infinity));
    const [x, y] = [atX(here), atY(here)];
    let best = here, least = Infinity;
    for (let i = 0, n = count(); i < n; i++) {
      const [across, down] = [atX(i) - x, atY(i) - y];
      const ahead = across * dx + down * dy, aside = Math.abs(across * dy) + Math.abs(down * dx);
      const cost = ahead > 0 && aside <= ahead ? ahead + 2 * aside : Infinity;
      if (cost < least && isOffered(i)) [best, least] = [i, cost];
    }
    hover(best);
    keepInView(here);
    return undefined;
  }

  function keepInView(i) {
    if (i == null) return;
    const [x, y] = [atX(i), atY(i)];
    if (x < EDGE || y < EDGE || x > width - EDGE || y > height - EDGE) move(width / 2 - x, height / 2 - y);
  }

  function hover(i) {
    if (i === here) return;
    here = i;
    hovered(i);
    invalidate();
  }

  function zoom(times, { x, y } = { x: width / 2, y: height / 2 }) {
    const scale = Math.min(200, Math.max(1, view.scale * times));
    for (const [name, at] of [["x", (x - left()) / side], ["y", (y - top()) / side]]) {
      view[name] = at - ((at - view[name]) * scale) / view.scale;
    }
    view.scale = scale;
    move(0, 0);
  }

  function move(across, down) {
    const inside = (value) => Math.min(0.5, Math.max(0.5 - view.scale, value));
    clearTimeout(moving);
    moving = setTimeout(() => { moving = 0; invalidate(); }, RESTING);
    view.x = view.scale === 1 ? 0 : inside(view.x + across / side);
    view.y = view.scale === 1 ? 0 : inside(view.y + down / side);
    invalidate();
  }

  function everything() {
    Object.assign(view, { scale: 1, x: 0, y: 0 });
    invalidate();
  }

  function select(isInside) {
    const places = [];
    for (let i = 0, n = count(); i < n; i++) if ((!shown || shown[i]) && isInside(atX(i), atY(i))) places.push(i);
    choose(places);
    selected(places);
  }

  function choose(places) {
    picked = places.length ? new Uint8Array(count()) : null;
    for (const i of places) picked[i] = 1;
    invalidate();
  }

  const inView = () => select((x, y) => x >= 0 && y >= 0 && x <= width && y <= height);

  const pick = toggle("select", "Select by drawing around items", () => {
    selecting = !selecting;
    pick.setAttribute("aria-pressed", selecting);
    canvas.classList.toggle("selecting", selecting);
    invalidate();
  });
  tools.append(pick, button("in view", "Select all items in view", inView), button("+", "Zoom in", () => zoom(1.5)),
    button("−", "Zoom out", () => zoom(1 / 1.5)), button("all", "Show everything", everything));

  // Pointers: hovering shows a name, a click chooses, dragging moves or draws a selection, two fingers zoom.
  const fingers = new Map();
  let moved = false;
  const inside = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    return { x: clientX - box.left, y: clientY - box.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const at = inside(event);
    fingers.set(event.pointerId, at);
    moved = false;
    if (fingers.size === 1 && (selecting || event.shiftKey)) lasso = [[at.x, at.y]];
    if (event.pointerType === "mouse" || lasso) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = inside(event), before = fingers.get(event.pointerId);
    if (!before) return hover(nearest(now));
    if (Math.hypot(now.x - before.x, now.y - before.y) < 3 && !moved) return undefined;
    moved = true;
    fingers.set(event.pointerId, now);
    if (lasso) return lasso.push([now.x, now.y]), invalidate();
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (!other) return move(now.x - before.x, now.y - before.y);
    const apart = (finger) => Math.hypot(finger.x - other.x, finger.y - other.y) || 1;
    return zoom(apart(now) / apart(before), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
  });
  canvas.addEventListener("pointerup", (event) => {
    const at = inside(event);
    if (fingers.delete(event.pointerId) && !moved && !lasso) {
      const i = nearest(at, event.pointerType === "mouse" ? REACH : 2 * REACH);
      hover(i);
      if (i != null) chosen(i);
    }
    finish();
  });
  canvas.addEventListener("pointercancel", (event) => {
    fingers.delete(event.pointerId);
    lasso = null;
    invalidate();
  });
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && !fingers.size) hover(null);
  });
  function finish() {
    if (!lasso) return;
    const corners = lasso;
    lasso = null;
    select((x, y) => isWithin(corners, x, y));
  }
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / (event.ctrlKey ? 100 : 400)), inside(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const times = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (arrow && event.shiftKey) move(-60 * arrow[0], -60 * arrow[1]);
    else if (arrow) step(...arrow);
    else if (times) zoom(times, here == null ? undefined : { x: atX(here), y: atY(here) });
    else if (event.key === "0") everything();
    else if (event.key === "Enter" && here != null) chosen(here);
    else if (event.key === "Escape") letGo();
    else return;
    event.preventDefault();
  });
  function letGo() {
    lasso = null;
    hover(null);
    if (picked) choose([]), selected([]);
    invalidate();
  }
  new ResizeObserver(invalidate).observe(stage);

  return {
    canvas,
    place: (given) => { points = given; paints = new Uint32Array(given.length / 2); everything(); },
    paint: (given, asSquares = null) => { [paints, squares] = [given, asSquares]; invalidate(); },
    light: (mask) => { shown = mask; invalidate(); }, // 1 for each point that is not faded, or null
    mark: (places) => { marks = places; invalidate(); },
    look: (i) => { looked = i; keepInView(i); invalidate(); }, // the item whose neighbours are shown, or null
    choose,
    invalidate,
  };
}

// Returns the pixels of a shape around a centre: their offsets across and down, and how much of each is covered, in 256ths.
function stamp(radius, opacity, length) {
  const across = [], down = [], shares = [], reach = Math.ceil(radius + 0.5);
  for (let y = -reach; y <= reach; y++) {
    for (let x = -reach; x <= reach; x++) {
      const share = Math.min(1, radius + 0.5 - length(x, y));
      if (share <= 0) continue;
      across.push(x);
      down.push(y);
      shares.push(Math.round(256 * share * opacity));
    }
  }
  return { across: Int16Array.from(across), down: Int16Array.from(down), shares: Int32Array.from(shares) };
}

// Returns whether a point is within a polygon: a ray from it then crosses the border an odd number of times.
function isWithin(corners, x, y) {
  let odd = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const [[ax, ay], [bx, by]] = [corners[i], corners[j]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
  }
  return odd;
}

// Returns a CSS colour or variable as the number of a pixel in an image (little-endian, as in every browser).
const onePixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function packed(text) {
  const styles = getComputedStyle(document.documentElement);
  onePixel.fillStyle = text.replace(/var\((.+?)\)/, (_, name) => styles.getPropertyValue(name).trim());
  onePixel.fillRect(0, 0, 1, 1);
  const [r, g, b] = onePixel.getImageData(0, 0, 1, 1).data;
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}
