// The explorer's page: requests data from the server, and connects map, search, selection and curves.
// A module, so that its names do not clash with those of the other scripts.

const FOUND = 24; // neighbours that are requested
const SOME = 48; // pictures that are shown of a selection
const HOVER = 60; // milliseconds of hovering before a name is requested
const AGAIN = { status: 700, going: 2000, finished: 10000 }; // milliseconds between requests
// The colour scale for columns of numbers, from lowest to highest; lightness always increases.
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

const byId = (id) => document.getElementById(id);

// Requests a path. An answer is JSON, CSV or bytes; an error is one sentence.
async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is likewise explore still running?");
  }
  if (!response.ok) {
    const text = await response.text();
    const said = text.startsWith("{") ? JSON.parse(text).error : text;
    throw new Error(said || `The server answered ${response.status}.`);
  }
  const kind = response.headers.get("content-type") ?? "";
  if (kind.startsWith("application/json")) return response.json();
  return kind.startsWith("text/csv") ? response.text() : response.arrayBuffer();
}

function say(words, kind = "") {
  const message = byId("message");
  message.textContent = words;
  message.className = kind;
  message.hidden = !words;
}

// Runs an action of the page and shows its error, if there is one.
async function tried(action) {
  try {
    await action();
  } catch (error) {
    if (error !== OVERTAKEN) say(error.message, "bad");
  }
}

// If an action is started again before the last one of its kind has finished, the earlier one is abandoned.
const OVERTAKEN = new Error("a newer request has replaced this one");
const tickets = {};
function latest(kind) {
  const mine = (tickets[kind] ?? 0) + 1;
  tickets[kind] = mine;
  return async (answer) => {
    const result = await answer;
    if (tickets[kind] !== mine) throw OVERTAKEN;
    return result;
  };
}

const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const pictureOf = (id, label) => element("img", { src: `/picture/${id}`, alt: label, loading: "lazy" });
const nameOf = ({ id, path, caption, text }) => caption ?? text ?? path ?? `item ${number(id)}`;

// ---- the map

const scene = { about: null, ids: null, placeOf: new Map(), columns: new Map(), column: null, lit: null, selection: [] };
const tip = element("div", { class: "tip", role: "status", hidden: "" });
const map = pointMap(byId("stage"), {
  hovered: (i) => tried(() => name(i)),
  chosen: (i) => goTo(scene.ids[i]),
  selected: (places) => tried(() => choose(places)),
});
byId("stage").append(tip);

async function name(i) {
  const still = latest("name");
  tip.hidden = true;
  if (i == null) return;
  await still(wait(HOVER));
  const told = await still(ask(`/item/${scene.ids[i]}`));
  const value = scene.column ? told.columns[scene.column.name] : null;
  const words = element("span", {}, element("span", { dir: "auto" }, told.name));
  if (scene.column) words.append(element("span", { class: "class" }, `${scene.column.name} ${value ?? "–"}`));
  tip.replaceChildren(pictureOf(told.id, ""), words);
  tip.hidden = false;
  const { x, y } = map.canvas.placeOf(i), [wide, high] = [byId("stage").clientWidth, byId("stage").clientHeight];
  tip.style.left = `${Math.max(4, Math.min(wide - tip.offsetWidth - 4, x + 14))}px`;
  tip.style.top = `${y + 14 + tip.offsetHeight < high ? y + 14 : Math.max(4, y - 14 - tip.offsetHeight)}px`;
}

async function begin() {
  const [about, ids, points] = await Promise.all([ask("/about"), ask("/ids"), ask("/points")]);
  scene.about = about;
  scene.ids = new Int32Array(ids);
  scene.placeOf = new Map(Array.from(scene.ids, (id, i) => [id, i]));
  byId("look").hidden = byId("colours").hidden = false;
  map.place(new Float32Array(points));
  byId("note").textContent = about.note;
  byId("doubt").replaceChildren(...about.doubt ? [element("li", {}, about.doubt)] : []);
  byId("words").disabled = byId("ask").disabled = false;
  byId("words").placeholder = about.words ? "Text, or an id" : "An id, or part of a name";
  byId("file-label").hidden = !about.takes;
  byId("file").accept = about.takes ? `${about.takes}/*` : "";
  const choices = about.columns.map((column, place) => element("option", { value: place }, column.name));
  byId("column").replaceChildren(...choices);
  await colourBy(0);
  await follow();
}

// ---- colours

async function colourBy(place) {
  const column = scene.about.columns[place], still = latest("colour");
  if (!scene.columns.has(place)) {
    const bytes = await still(ask(`/column/${place}`));
    scene.columns.set(place, column.classes ? new Int32Array(bytes) : new Float32Array(bytes));
  }
  scene.column = { ...column, values: scene.columns.get(place) };
  byId("column").value = place;
  say("");
  light(null);
  paint();
}

function light(c) {
  scene.lit = c;
  map.light(c == null ? null : Uint8Array.from(scene.column.values, (value) => value === c));
}

function paint() {
  if (!scene.column) return;
  const { values, classes, name: called } = scene.column;
  const none = packed("var(--faint)");
  if (classes) {
    const style = classStyle(classes);
    const colours = classes.map((_, c) => packed(style.paint(c)));
    map.paint(Uint32Array.from(values, (c) => (c < 0 ? none : colours[c])), Uint8Array.from(values, (c) => style.square(c)));
    byId("legend").replaceChildren(...classes.length ? namesLegend(called, classes, values, style) : []);
  } else {
    const [low, high] = range(values);
    const at = (value) => (Number.isNaN(value) ? none : between((value - low) / (high - low || 1)));
    map.paint(Uint32Array.from(values, at));
    byId("legend").replaceChildren(scaleLegend(called, low, high));
  }
}

function namesLegend(called, classes, values, style) {
  const counts = new Uint32Array(classes.length);
  for (const c of values) if (c >= 0) counts[c] += 1;
  const nodes = classes.slice(0, NAMED).map((text, c) => {
    const node = toggle("", `Show ${called} ${text} only`, () => {
      light(scene.lit === c ? null : c);
      nodes.forEach((other, i) => other.setAttribute("aria-pressed", i === scene.lit));
    });
    node.setAttribute("aria-pressed", c === scene.lit);
    const mark = element("i", { class: style.square(c) ? "square" : "round", style: `background: ${style.paint(c)}` });
    node.append(mark, element("span", { dir: "auto" }, text), element("small", {}, number(counts[c])));
    return node;
  });
  const more = `and ${number(classes.length - NAMED)} more, distinguished by hue`;
  const legend = element("div", { class: "legend" }, ...nodes);
  return classes.length > NAMED ? [legend, element("p", { class: "note" }, more)] : [legend];
}

function scaleLegend(called, low, high) {
  const stops = SCALE.map((rgb) => `rgb(${rgb.join(" ")})`).join(", ");
  const bar = element("div", { class: "bar", style: `background: linear-gradient(to right, ${stops})` });
  const ends = element("div", { class: "ends" }, element("span", {}, number(low)), element("span", {}, number(high)));
  return element("div", { class: "scale", role: "img", "aria-label": `${called} from ${number(low)} to ${number(high)}` },
    bar, ends);
}

// The range of values without the outermost hundredth on either side: a few extreme values would leave one colour for all.
function range(values) {
  const known = values.filter((value) => !Number.isNaN(value)).sort();
  if (!known.length) return [0, 1];
  return [known[Math.floor(0.01 * (known.length - 1))], known[Math.ceil(0.99 * (known.length - 1))]];
}

function between(share) {
  const place = Math.min(1, Math.max(0, share)) * (SCALE.length - 1), first = Math.min(SCALE.length - 2, Math.floor(place));
  const [r, g, b] = SCALE[first].map((value, i) => Math.round(value + (SCALE[first + 1][i] - value) * (place - first)));
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}

// ---- search results: the neighbours of an item, of a file, of a text

const tileOf = (item) => {
  const label = [nameOf(item), item.label && `label ${item.label}`].filter(Boolean).join(", ");
  const alike = item.similarity == null ? "" : item.similarity.toFixed(3);
  const link = element("a", { href: `#${item.id}`, title: label }, pictureOf(item.id, label),
    element("span", { class: "cut", dir: "auto" }, item.caption ?? item.text ?? item.label ?? nameOf(item)), element("small", {}, alike));
  link.addEventListener("click", (event) => { event.preventDefault(); goTo(item.id); });
  return element("li", {}, link);
};

function show(query, title, items) {
  const hadFocus = byId("found").contains(document.activeElement);
  byId("found").hidden = false;
  byId("query").replaceChildren(...query);
  byId("found-title").textContent = items.length ? title : "Nothing found";
  byId("neighbours").replaceChildren(...items.map(tileOf));
  if (hadFocus) byId("found-title").focus(); // so that the focus does not return to the top of the page
  map.look(null);
  map.mark(items.map(({ id }) => scene.placeOf.get(id)).filter((i) => i != null));
}

// The current item is part of the address, so that the Back button returns to the one before.
function goTo(id) {
  if (location.hash === `#${id}`) tried(follow);
  else location.hash = `#${id}`;
}

async function follow() {
  const id = /^#(\d+)$/.exec(location.hash)?.[1];
  if (id == null || !scene.about) return;
  const still = latest("found");
  const [told, items] = await still(Promise.all([ask(`/item/${id}`), ask(`/like/${id}?k=${FOUND}`)]));
  const values = Object.entries(told.columns).filter(([, value]) => value != null)
    .flatMap(([key, value]) => [element("dt", {}, key), element("dd", { dir: "auto" }, String(value))]);
  const large = pictureOf(id, `Picture of ${told.name}`);
  const picture = told.file
    ? element("a", { href: `/file/${id}`, target: "_blank", rel: "noreferrer", title: "Open the file" }, large) : large;
  const captions = told.captions.filter((text) => text !== told.name).slice(0, 5).map((text) => element("p", { class: "caption", dir: "auto" }, text));
  const sound = scene.about.heard ? [element("audio", { controls: "", preload: "none", src: `/sound/${id}` })] : [];
  say("");
  show([element("h2", { dir: "auto" }, told.name), element("div", { class: "item" }, picture,
    element("div", {}, ...captions, element("dl", {}, element("dt", {}, "id"), element("dd", {}, String(id)), ...values))),
  ...sound], "Most similar items", items);
  map.look(scene.placeOf.get(Number(id)) ?? null);
}

async function search(words) {
  const text = words.trim();
  if (!text) return;
  if (/^(0|[1-9]\d*)$/.test(text)) { // an id; 005 would be part of a name
    goTo(text);
    return;
  }
  say("Searching …");
  const { by, found, count, note } = await latest("found")(ask(`/find?k=${FOUND}&words=${encodeURIComponent(text)}`));
  say("");
  const first = count > found.length ? `, the first ${number(found.length)}` : "";
  const title = by === "words" ? "Most similar to this text"
    : `${number(count)} item${count === 1 ? "" : "s"} with this in the name or label${first}`;
  const tiles = by === "words" ? found : found.map((item) => ({ ...item, label: null })); // show names, not labels
  show([element("h2", { dir: "auto" }, `“${text}”`)], title, tiles);
  if (note) say(note, "bad");
  if (!found.length && by === "name") say("No name or label contains this. Only runs of clip, or on texts, can be searched by other words.");
}

async function upload(file) {
  if (!scene.about?.takes) return;
  if (file.size > scene.about.most_bytes) {
    throw new Error(`At most ${scene.about.most_bytes >> 20} MiB are accepted, got ${number(file.size / 2 ** 20)} MiB.`);
  }
  say(`Searching for items similar to ${file.name} …`);
  const options = { method: "POST", body: file, headers: { "X-Name": encodeURIComponent(file.name) } };
  const items = await latest("found")(ask(`/upload?k=${FOUND}`, options));
  say("");
  const preview = scene.about.takes === "image"
    ? [element("img", { class: "preview", src: URL.createObjectURL(file), alt: `Picture of ${file.name}` })] : [];
  show([element("h2", { dir: "auto" }, file.name), ...preview], "Most similar to this file", items);
}

// ---- the selection

async function choose(places) {
  scene.selection = places;
  byId("selection").hidden = !places.length;
  byId("selected").textContent = `${number(places.length)} item${places.length === 1 ? "" : "s"} selected`;
  const every = Math.max(1, places.length / SOME);
  const some = Array.from({ length: Math.min(SOME, places.length) }, (_, i) => scene.ids[places[Math.floor(i * every)]]);
  byId("some").replaceChildren(...some.map((id) => element("li", {},
    element("a", { href: `#${id}`, title: `item ${id}` }, pictureOf(id, `item ${id}`)))));
}

async function exported() {
  const body = JSON.stringify(scene.selection.map((i) => scene.ids[i]));
  const text = await ask("/export", { method: "POST", body });
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  element("a", { href: url, download: "items.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  say(`Saved ${number(scene.selection.length)} item${scene.selection.length === 1 ? "" : "s"} to items.csv.`);
}

// ---- training: curves, and the dictionary's meters

let rows = -1, server = null;
async function train() {
  const run = await ask("/curves");
  if (server != null && server !== run.id) location.reload(); // the server was restarted
  server = run.id;
  document.title = byId("title").textContent = run.title;
  byId("step").textContent = run.finished ? `Finished after ${number(run.step)} steps.`
    : run.rows ? `Step ${number(run.step)}, logged ${number(run.ago)} s ago; not finished.` : "No step has been logged yet.";
  if (run.rows !== rows) {
    rows = run.rows;
    byId("warnings").replaceChildren(...run.warnings.map((text) => element("li", {}, text)));
    byId("dictionary").hidden = !run.meters.length;
    byId("dictionary-kind").textContent = run.dictionary;
    byId("meters").replaceChildren(...run.meters.map(meter));
    byId("charts").replaceChildren(...run.charts.map(chart));
  }
  return run.finished ? AGAIN.finished : AGAIN.going;
}

function meter({ name: called, value, most }) {
  const drawn = most == null ? [] : [element("meter", { min: 0, max: most, value, "aria-label": called })];
  return element("div", {}, element("dt", {}, called), element("dd", { class: "value" }, number(value)), ...drawn);
}

async function watch() {
  for (let lost = false; ; ) {
    let again = AGAIN.going;
    try {
      if (!document.hidden) again = await train();
      if (lost) say("");
      lost = false;
    } catch (error) {
      lost = true;
      say(error.message, "bad");
    }
    await wait(again);
  }
}

// Shows the share of the current task that is done, 0 to 1; null hides the bar.
function showShare(share) {
  const bar = byId("progress"), percent = Math.floor(100 * (share ?? 0));
  bar.hidden = share == null;
  bar.setAttribute("aria-valuenow", percent);
  bar.firstElementChild.style.width = `${percent}%`;
}

async function arrive() {
  for (;;) {
    const { ready, failed, said, share } = await ask("/status").catch(() => ({ said: "Waiting for the server …" }));
    showShare(ready ? null : share);
    if (ready) return begin();
    if (failed) throw new Error(said);
    if (byId("message").textContent !== said) say(said); // screen readers would read it aloud again
    await wait(AGAIN.status);
  }
}

// ---- light and dark: the preference of the system, until the button is pressed

const darkRules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
  .filter((rule) => rule instanceof CSSMediaRule && rule.conditionText.includes("prefers-color-scheme: dark"));
function wear(dark) {
  for (const rule of darkRules) rule.media.mediaText = dark ? "screen" : "not all";
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", dark);
  paint();
}
const prefers = matchMedia("(prefers-color-scheme: dark)");
const kept = () => { try { return localStorage.getItem("likewise-theme"); } catch { return null; } };
const keep = (theme) => { try { localStorage.setItem("likewise-theme", theme); } catch { /* not allowed here */ } };
const isDark = () => (kept() ?? (prefers.matches ? "dark" : "light")) === "dark";

wear(isDark());
prefers.addEventListener("change", () => wear(isDark()));
byId("theme").addEventListener("click", () => {
  keep(isDark() ? "light" : "dark");
  wear(isDark());
});

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  tried(() => search(byId("words").value));
});
byId("file").addEventListener("change", ({ target }) => {
  if (target.files.length) tried(() => upload(target.files[0]));
  setTimeout(() => { target.value = ""; }); // so that choosing the same file again is noticed
});
byId("column").addEventListener("change", ({ target }) => tried(() => colourBy(Number(target.value))));
byId("export").addEventListener("click", () => tried(exported));
byId("clear").addEventListener("click", () => { map.choose([]); choose([]); });
addEventListener("hashchange", () => tried(follow));

// A file may be dropped anywhere on the page.
const hasFile = (event) => scene.about?.takes && event.dataTransfer?.types.includes("Files");
addEventListener("dragover", (event) => {
  event.preventDefault();
  byId("drop").hidden = !hasFile(event);
});
addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("drop").hidden = true; });
addEventListener("drop", (event) => {
  event.preventDefault();
  byId("drop").hidden = true;
  if (hasFile(event) && event.dataTransfer.files.length) tried(() => upload(event.dataTransfer.files[0]));
});

watch();
tried(arrive);
