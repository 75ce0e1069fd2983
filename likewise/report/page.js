// The report's page: draws charts, map and pictures into the sections that page.py wrote.
"use strict";

const OF_CLASSES = { same: "same class as the query", other: "a different class" };
const OF_CAPTIONS = { same: "the image of this caption", other: "another image" };

// A query is an item, or a caption, which has no picture. `sounds` has audio elements by tile.
function neighbourRows({ sprite, rows }, words, sounds = new Map()) {
  const tile = pictures(sprite);
  const heard = (item) => (sounds.has(item.tile) ? [playButton(sounds.get(item.tile))] : []);
  const named = ({ name, label }) => (label == null ? name : `${name}, class ${label}`);
  const alike = ({ similarity }) => similarity?.toFixed(2) ?? "–";
  const cut = (text) => element("span", { class: "cut" }, text);
  const kinds = new Map([[true, "same"], [false, "other"]]);
  const found = (item) => {
    const kind = kinds.get(item.same);
    return element("div", { class: kind ?? "" },
      tile(item.tile, `${named(item)}, similarity ${alike(item)}${kind ? `, ${words[kind]}` : ""}`),
      element("span", { class: "mark" }),
      ...heard(item),
      element("div", { class: "caption" }, cut(item.label ?? ""), alike(item)));
  };
  const query = (item) => item.tile == null ? element("p", { class: "asked", dir: "auto" }, item.name)
    : element("div", { class: "query" },
      element("div", {}, tile(item.tile, `query: ${named(item)}`), ...heard(item)),
      element("div", { class: "caption" }, cut(item.label ?? ""),
        element("span", { class: "name", dir: "auto" }, item.name)));
  const row = (one) => element("li", {}, query(one.query), element("div", { class: "found" }, ...one.found.map(found)));
  const list = element("ul", { class: "neighbours" }, ...rows.map(row));
  const key = (kind, text) => element("li", { class: kind }, element("span", { class: "mark" }), text);
  const marks = element("ul", { class: "key" }, key("same", words.same), key("other", words.other));
  return list.querySelector(".same, .other") ? [marks, list] : [list];
}

// Take the sounds out of the list that page.py wrote for readers without JavaScript: its players are too wide to stand
// below pictures.
function takeSounds() {
  const list = document.querySelector(".players");
  list?.remove();
  return new Map([...(list?.querySelectorAll("audio") ?? [])].map((sound) => [Number(sound.dataset.tile), sound]));
}

let playing = null;
function playButton(sound) {
  const node = toggle("▶", `Play ${sound.getAttribute("aria-label")}`, () => {
    if (playing && playing !== sound) playing.pause();
    if (sound.paused) sound.play();
    else sound.pause();
  });
  node.classList.add("play");
  const show = () => {
    playing = sound.paused ? playing : sound;
    node.textContent = sound.paused ? "▶" : "■";
    node.setAttribute("aria-pressed", String(!sound.paused));
  };
  for (const change of ["play", "pause", "ended"]) sound.addEventListener(change, show);
  sound.addEventListener("pause", () => (sound.currentTime = 0));
  return node;
}

function pairRows({ sprite, columns, rows, captions }) {
  const tile = pictures(sprite);
  const views = (places, i) => places.map((place, c) => tile(place, `${columns[c]}, row ${i + 1}`));
  const row = (places, i) => element("li", {}, element("div", { class: "views" }, ...views(places, i)),
    ...(captions ? [element("p", { class: "caption", dir: "auto" }, captions[i])] : []));
  const order = element("p", { class: "key" }, `From left to right: ${columns.join(", ")}.`);
  return [order, element("ul", { class: "pairs" }, ...rows.map(row))];
}

{
  const contents = JSON.parse(document.getElementById("contents").textContent);
  const fill = (id, parts) => document.getElementById(id).append(...parts);
  if (contents.map) fill("map", [embeddingMap(contents.map)]);
  if (contents.words) fill("words", neighbourRows(contents.words, OF_CAPTIONS));
  if (contents.neighbours) fill("neighbours", neighbourRows(contents.neighbours, OF_CLASSES, takeSounds()));
  if (contents.histogram) fill("similarities", [histogram(contents.histogram)]);
  if (contents.charts) fill("training", [element("div", { class: "charts" }, ...contents.charts.map(chart))]);
  if (contents.pairs) fill("pairs", pairRows(contents.pairs));
}
