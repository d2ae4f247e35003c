// What runs do and say: words that select, and a map to brush.
"use strict";

/** How large a phrase is written that so many runs have, of those that most have. */
const sizeOf = (runs, most) => 12 + 30 * Math.sqrt(runs / most);

/** As many of the phrases as there is room for, those first that most runs have. */
function fitting(phrases, most, width, height) {
  let room = 0.7 * width * height;
  return phrases.filter((phrase) => {
    const size = sizeOf(phrase.runs.length, most);
    room -= (0.6 * size * phrase.text.length + 18) * (1.2 * size + 2);
    return room > 0;
  });
}

const patterns = { cloud: 0, words: new Set(), find: "" };

function openPatterns() {
  selection.setters.set("words", (value) => {
    const [name, ...words] = value.split("|");
    patterns.cloud = Math.max(0, store.data.clouds.findIndex((cloud) => cloud.name === name));
    for (const word of words) patterns.words.add(word);
    selectWords();
  });
  selection.setters.set("map", (value) => {
    const indexes = unpackNumbers(value, store.data.map?.points.length ?? 0);
    selectPoints("map", indexes);
    if (indexes.length) showRegion(indexes);
  });
  byId("cloud-tabs").replaceChildren(
    ...store.data.clouds.map((cloud, index) =>
      make("button", {
        type: "button",
        text: cloud.name,
        aria_pressed: String(index === 0),
        on: {
          click: () => {
            patterns.cloud = index;
            patterns.words.clear();
            if (selection.has("words")) selection.remove("words");
            else showCloud();
          },
        },
      }),
    ),
  );
  byId("map-find").addEventListener("input", (event) => {
    patterns.find = event.target.value.trim().toLowerCase();
    showMap();
  });
  if (!store.data.map) {
    byId("map").hidden = true;
    byId("map-find").closest("label").hidden = true;
    byId("map-note").textContent = store.data.contents
      ? "There are too few distinct actions for a map."
      : "This report has no contents, so there is no map.";
  }
}

function showPatterns() {
  showCloud();
  showMap();
}

function showCloud() {
  const cloud = store.data.clouds[patterns.cloud];
  const among = new Set(selection.runs("words"));
  const counted = cloud.phrases
    .map(([text, runs]) => ({ text, runs: runs.filter((run) => among.has(run)) }))
    .filter((phrase) => phrase.runs.length);
  const most = Math.max(1, ...counted.map((phrase) => phrase.runs.length));
  counted.sort((one, other) => other.runs.length - one.runs.length);
  const shown = fitting(counted, most, byId("cloud").clientWidth, byId("cloud").clientHeight);
  shown.sort((one, other) => one.text.localeCompare(other.text));
  [...byId("cloud-tabs").children].forEach((tab, index) => tab.setAttribute("aria-pressed", String(index === patterns.cloud)));
  byId("cloud-note").textContent =
    `The ${plural(shown.length, "phrase")} that most runs have, of ${cloud.of} in ${plural(among.size, "run")}. ` +
    "Click words to select the runs with any of them.";
  byId("cloud").replaceChildren(
    ...shown.map((phrase) => {
      return make("li", {
        children: [
          make("button", {
            type: "button",
            text: phrase.text,
            title: plural(phrase.runs.length, "run"),
            aria_pressed: String(patterns.words.has(phrase.text)),
            style: { fontSize: `${sizeOf(phrase.runs.length, most).toFixed(1)}px` },
            on: { click: () => chooseWord(phrase.text) },
          }),
        ],
      });
    }),
  );
}

function chooseWord(text) {
  if (!patterns.words.delete(text)) patterns.words.add(text);
  selectWords();
  [...byId("cloud").querySelectorAll("button")].find((button) => button.textContent === text)?.focus();
}

function selectWords() {
  const cloud = store.data.clouds[patterns.cloud];
  const chosen = cloud.phrases.filter(([phrase]) => patterns.words.has(phrase));
  const words = chosen.map(([phrase]) => phrase);
  selection.set("words", [cloud.name, ...words].join("|"), shortened(words.join(", "), 60), chosen.length ? chosen.flatMap(([, runs]) => runs) : null, () => patterns.words.clear());
}

const NAMED_ACTIONS = 9;

function showMap() {
  const { map } = store.data;
  if (!map) return;
  charts.show("map", mapPoints, (element) => {
    brushed(element, "map", (point) => point.customdata);
    element.on("plotly_selected", (covered) => covered && showRegion(covered.points.map((point) => point.customdata)));
    element.on("plotly_deselect", () => showRegion([]));
  });
  byId("map-note").textContent =
    `${plural(map.actions, "different action")}; similar actions are close. ` +
    (map.points.length < map.actions ? `${count(map.points.length)} are drawn, each with the actions most similar to it. ` : "") +
    "Drag a line around actions to select the runs that took them.";
  if (!selection.has("map")) showRegion([]);
}

function mapPoints() {
  const { points } = store.data.map;
  const among = new Set(selection.runs("map"));
  const totals = new Map();
  for (const point of points) totals.set(point.name, (totals.get(point.name) ?? 0) + point.steps);
  const named = [...totals].sort((one, other) => other[1] - one[1]).slice(0, NAMED_ACTIONS).map(([name]) => name);
  const others = totals.size > named.length ? [null] : [];
  const traces = [...named, ...others].map((name, index) => {
    const mine = points.map((point, at) => [point, at]).filter(([point]) => (name === null ? !named.includes(point.name) : point.name === name));
    const lit = mine.map(([point]) => point.runs.some((run) => among.has(run)) && `${point.name} ${point.text}`.toLowerCase().includes(patterns.find));
    return {
      x: mine.map(([point]) => point.x),
      y: mine.map(([point]) => point.y),
      text: mine.map(([point]) => wrapped(`${point.name} ${point.text}`)),
      customdata: mine.map(([, at]) => at),
      name: name === null ? "others" : plain(shortened(name, 28)),
      mode: "markers",
      marker: {
        size: mine.map(([point]) => Math.min(26, 4 + 1.6 * Math.sqrt(point.steps))),
        opacity: lit.map((is) => (is ? 0.72 : 0.06)),
        color: name === null ? charts.colour("--quiet") : colourOf(index),
        line: { width: 0.5, color: charts.colour("--card") },
      },
      unselected: { marker: { opacity: 0.08 } },
      hovertemplate: mine.map(([point]) => `%{text}<br>${plural(point.steps, "step")}, ${plural(point.runs.length, "run")}<extra></extra>`),
    };
  });
  return {
    traces,
    layout: {
      xaxis: { visible: false, range: [-0.03, 1.03] },
      yaxis: { visible: false, range: [-0.03, 1.03] },
      margin: { l: 8, r: 8, t: 4, b: 8 },
      dragmode: "lasso",
      hovermode: "closest",
      legend: { y: -0.02, itemsizing: "constant" },
      uirevision: "map",
    },
  };
}

let regionTable = null;

function showRegion(indexes) {
  regionTable ??= new SortedTable(byId("region"), [
    { title: "Action", value: (point) => point.name, show: (point) => make("span", { class: "name-cell", title: point.name, text: point.name }) },
    { title: "Arguments", value: (point) => point.text, show: (point) => make("code", { text: point.text }) },
    { title: "Steps", number: true, value: (point) => point.steps, show: (point) => count(point.steps) },
    { title: "Runs", number: true, value: (point) => point.runs.length, show: (point) => count(point.runs.length) },
  ]);
  byId("region").closest(".card").hidden = !indexes.length;
  byId("region-note").textContent = plural(indexes.length, "action");
  regionTable.show(indexes.map((index) => store.data.map.points[index]).sort((one, other) => other.steps - one.steps));
}
