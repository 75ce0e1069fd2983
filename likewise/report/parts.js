// What charts, maps and galleries are made of: elements, buttons, numbers, colours, and pictures cut from a sheet.
"use strict";

// Children that are text stay text: nothing in a name can become markup.
function element(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

function drawing(tag, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function number(value) {
  const size = Math.abs(value);
  const digits = { maximumSignificantDigits: Math.max(4, Math.floor(size).toString().length) };
  const plain = size === 0 || (size >= 1e-3 && size < 1e9);
  const text = plain ? value.toLocaleString("en", digits) : value.toExponential(2).replace(/\.?0*e\+?/, "e");
  return text.replaceAll("-", "−");
}

const colour = (i) => `var(--c${(i % 10) + 1})`;
const NAMED = 20; // classes in a legend; more are told apart by hue alone

// Ten colours, then the same ten as squares; beyond twenty a wheel of hues, neighbours far apart on it.
function classStyle(classes) {
  const many = classes.length > NAMED;
  const named = (c) => (many ? `hsl(${(c * 137.5) % 360} 65% var(--wheel))` : colour(c));
  return { paint: (c) => (c == null ? "var(--faint)" : named(c)), square: (c) => !many && c >= 10 };
}

function toggle(text, label, act) {
  const node = button(text, label, act);
  node.setAttribute("aria-pressed", "false");
  return node;
}

function button(text, label, act) {
  const node = element("button", { type: "button", title: label, "aria-label": label }, text);
  node.addEventListener("click", () => act(node));
  return node;
}

// A function from a tile's number and what it shows to an element. The sheet's long address is kept once, in a style
// rule, whatever the number of tiles.
let sheets = 0;
function pictures(sprite) {
  if (!sprite) return () => "";
  const { uri, columns, side } = sprite;
  const small = side < 48;
  const fit = (pixels) => side * Math.max(1, Math.floor(pixels / side)); // whole multiples stay sharp
  const name = `sheet-${++sheets}`;
  const styles = document.head.appendChild(element("style")).sheet;
  const rule = styles.cssRules[styles.insertRule(`.${name} {}`)].style;
  rule.setProperty("background-image", `url(${JSON.stringify(uri)})`);
  rule.setProperty("image-rendering", small ? "pixelated" : "auto");
  rule.setProperty("--columns", columns);
  rule.setProperty("--small", `${small ? fit(72) : 64}px`);
  rule.setProperty("--large", `${small ? fit(89) : 80}px`);
  return (tile, label) => {
    const node = element("span", { class: `tile ${name}`, role: "img", "aria-label": label, title: label });
    node.style.setProperty("--column", tile % columns);
    node.style.setProperty("--row", Math.floor(tile / columns));
    return node;
  };
}
