// The map: one dot for each item, coloured by class. A dot that is pointed at, tapped or reached by keys shows its
// picture and name.
// embeddingMap({points: [[x, y] in 0..1, ...], labels, classes, names, sprite}): an element. Its canvas has
// placeOf(i), the position of item i in CSS pixels from the canvas's corner.
"use strict";

const MARGIN = 40; // the buttons lie in it

function embeddingMap({ points, labels, classes, names, sprite }) {
  const classOf = (i) => (labels?.[i] >= 0 ? labels[i] : null);
  const labelled = points.some((_, i) => classOf(i) != null);
  const style = classStyle(labelled ? classes : []);
  const tile = pictures(sprite);
  const sheet = new Image();
  if (sprite) sheet.src = sprite.uri;
  const keys = "Arrow keys move from item to item, Page Up and Page Down go through all of them, plus and minus zoom.";
  const label = `Map of ${number(points.length)} items. ${keys}`;
  const canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": label });
  const tip = element("div", { class: "tip", role: "status", hidden: "" });
  const tools = element("div", { class: "tools" });
  const stage = element("div", { class: "stage" }, canvas, tip, tools);
  const view = { scale: 1, x: 0, y: 0 }; // of the unit square, zoomed and moved
  let side = 0, chosen = null, lit = null, asPictures = false;

  const inner = () => side - 2 * MARGIN;
  const along = (name, value) => MARGIN + (value * view.scale + view[name]) * inner();
  const faded = (i) => lit != null && classOf(i) !== lit;
  const offered = () => [...points.keys()].filter((i) => !faded(i));
  canvas.placeOf = (i) => ({ x: along("x", points[i][0]), y: along("y", points[i][1]) });

  function draw() {
    side = stage.clientWidth;
    const dense = window.devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(side * dense);
    canvas.style.height = `${side}px`;
    canvas.classList.toggle("zoomed", view.scale > 1);
    const pen = canvas.getContext("2d");
    pen.scale(dense, dense);
    pen.imageSmoothingEnabled = !(sprite?.side < 48);
    const styles = getComputedStyle(canvas);
    const real = (text) => text.replace(/var\((.+?)\)/, (_, name) => styles.getPropertyValue(name).trim());
    const paint = (c) => real(labelled ? style.paint(c) : colour(0));
    const paints = new Map([null, ...(classes ?? []).keys()].map((c) => [c, paint(c)]));
    const larger = Math.sqrt(Math.min(4, view.scale) * Math.min(1, side / 600));
    const size = larger * (points.length > 4000 ? 1.8 : points.length > 1500 ? 2.5 : 3.5);
    // Draw faded dots first, so that highlighted ones are on top.
    for (const i of [...points.keys()].sort((a, b) => faded(b) - faded(a))) {
      const { x, y } = canvas.placeOf(i);
      pen.globalAlpha = faded(i) ? 0.12 : asPictures ? 1 : 0.82;
      pen.fillStyle = paints.get(classOf(i)) ?? paints.get(null);
      if (asPictures) stamp(pen, i, x, y, 18 * larger);
      else if (style.square(classOf(i))) box(pen, x, y, 1.8 * size);
      else disc(pen, x, y, size).fill();
    }
    if (chosen != null) {
      const { x, y } = canvas.placeOf(chosen);
      Object.assign(pen, { globalAlpha: 1, lineWidth: 2, strokeStyle: styles.getPropertyValue("--ink") });
      disc(pen, x, y, asPictures ? 14 * larger : size + 4).stroke();
      const room = side - y - 14 > tip.offsetHeight;
      tip.style.left = `${Math.max(4, Math.min(side - tip.offsetWidth - 4, x + 14))}px`;
      tip.style.top = `${room ? y + 14 : Math.max(4, y - 14 - tip.offsetHeight)}px`;
    }
  }

  const disc = (pen, x, y, radius) => (pen.beginPath(), pen.arc(x, y, radius, 0, 7), pen);
  const box = (pen, x, y, size) => pen.fillRect(x - size / 2, y - size / 2, size, size);
  const stamp = (pen, i, x, y, size) => {
    const { columns, side: wide } = sprite;
    const [left, top] = [(i % columns) * wide, Math.floor(i / columns) * wide];
    box(pen, x, y, size + 3); // a frame in the colour of the class
    pen.drawImage(sheet, left, top, wide, wide, x - size / 2, y - size / 2, size, size);
  };

  function choose(i) {
    if (i === chosen) return;
    chosen = i;
    tip.hidden = i == null;
    if (i != null) {
      const name = names?.[i] ?? `item ${i}`;
      const kind = classOf(i) == null ? "no class" : `class ${classes[classOf(i)]}`;
      const words = element("span", {}, element("span", { dir: "auto" }, name));
      if (labelled) words.append(element("span", { class: "class" }, kind));
      tip.replaceChildren(tile(i, `picture of ${name}`), words);
    }
    draw();
  }

  function nearest({ x, y }, reach) {
    const away = (i) => Math.hypot(canvas.placeOf(i).x - x, canvas.placeOf(i).y - y);
    const best = offered().reduce((a, b) => (a == null || away(b) < away(a) ? b : a), null);
    return best != null && away(best) < reach ? best : null;
  }

  // The nearest item that lies more in the arrow's direction than aside.
  function step(dx, dy) {
    const from = canvas.placeOf(chosen);
    const cost = (i) => {
      const { x, y } = canvas.placeOf(i);
      const ahead = (x - from.x) * dx + (y - from.y) * dy;
      const aside = Math.abs((x - from.x) * dy) + Math.abs((y - from.y) * dx);
      return ahead > 0 && aside <= ahead ? ahead + 2 * aside : Infinity;
    };
    choose(offered().reduce((a, b) => (cost(b) < cost(a) ? b : a), chosen));
  }

  function zoom(times, { x, y } = { x: side / 2, y: side / 2 }) {
    const scale = Math.min(40, Math.max(1, view.scale * times));
    for (const [name, at] of [["x", x], ["y", y]]) {
      const still = (at - MARGIN) / inner();
      view[name] = still - ((still - view[name]) * scale) / view.scale;
    }
    view.scale = scale;
    move(0, 0);
  }

  function move(across, down) {
    const inside = (value) => Math.min(0, Math.max(1 - view.scale, value));
    view.x = inside(view.x + across / inner());
    view.y = inside(view.y + down / inner());
    draw();
  }

  function press(event) {
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const by = { PageUp: -1, PageDown: 1 }[event.key];
    const times = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 }[event.key];
    if (event.key === "Escape") choose(null);
    if (!arrow && !by && !times) return;
    event.preventDefault();
    const items = offered();
    if (times) zoom(times, chosen == null ? undefined : canvas.placeOf(chosen));
    else if (chosen == null) choose(items[0] ?? null);
    else if (arrow) step(...arrow);
    else choose(items.at((items.indexOf(chosen) + by) % items.length));
    if (chosen == null) return;
    const { x, y } = canvas.placeOf(chosen);
    if (Math.min(x, y) < 0 || Math.max(x, y) > side) move(side / 2 - x, side / 2 - y);
  }

  function light(c) {
    lit = c;
    draw();
  }

  if (sprite) tools.append(toggle("pictures", "Draw pictures instead of dots", (node) => {
    asPictures = !asPictures;
    node.setAttribute("aria-pressed", asPictures);
    draw();
  }));
  tools.append(button("+", "Zoom in", () => zoom(1.5)), button("−", "Zoom out", () => zoom(1 / 1.5)));
  listen(canvas, { choose, nearest, zoom, move, press });
  new ResizeObserver(() => stage.clientWidth !== side && draw()).observe(stage);
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", draw);
  const hint = "Point at a dot, tap it, or use the arrow keys. Zoom with Ctrl and the wheel, by pinching, or with + and −; drag to move.";
  const beside = element("div", { class: "side" }, element("p", { class: "hint" }, hint));
  if (labelled) beside.prepend(...classLegend(classes, labels, style, light));
  return element("div", { class: "map" }, stage, beside);
}

// Pointer events: hovering and tapping choose an item, dragging moves, two fingers zoom.
function listen(canvas, { choose, nearest, zoom, move, press }) {
  const fingers = new Map();
  const inside = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    return { x: clientX - box.left, y: clientY - box.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, inside(event));
    if (event.pointerType !== "mouse") choose(nearest(inside(event), 30));
    else canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = inside(event), before = fingers.get(event.pointerId);
    if (!before) return choose(nearest(now, 14));
    fingers.set(event.pointerId, now);
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (!other) return move(now.x - before.x, now.y - before.y);
    const apart = (finger) => Math.hypot(finger.x - other.x, finger.y - other.y) || 1;
    return zoom(apart(now) / apart(before), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) canvas.addEventListener(end, (event) => {
    fingers.delete(event.pointerId);
    if (end === "pointerleave" && event.pointerType === "mouse") choose(null);
  });
  // The wheel alone scrolls the page; with Ctrl, or pinched on a trackpad, it zooms.
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 200), inside(event));
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => zoom(2, inside(event)));
  canvas.addEventListener("blur", () => choose(null));
  canvas.addEventListener("keydown", press);
}

function classLegend(classes, labels, style, light) {
  const nodes = classes.slice(0, NAMED).map((name, c) => {
    const node = toggle("", `Highlight class ${name}`, () => {
      const on = node.getAttribute("aria-pressed") !== "true";
      nodes.forEach((other) => other.setAttribute("aria-pressed", on && other === node));
      light(on ? c : null);
    });
    const mark = element("i", { class: style.square(c) ? "square" : "round", style: `background: ${style.paint(c)}` });
    node.append(mark, name, element("small", {}, number(labels.filter((label) => label === c).length)));
    return node;
  });
  const more = `and ${number(classes.length - NAMED)} more classes, distinguished by hue`;
  const legend = element("div", { class: "legend" }, ...nodes);
  return classes.length > NAMED ? [legend, element("p", { class: "hint" }, more)] : [legend];
}
