// Which runs are selected: those that every filter lets through. Any view may set a filter.
"use strict";

const selection = {
  _filters: new Map(), // name -> {label, runs: Set of indexes, value: text, clear: undoes the filter}
  _listeners: [],

  /** What sets a filter again from its value in the address, by the first word of its name. */
  setters: new Map(),

  /** Lets only these runs through; an empty filter is none. `value` is its text in the address. */
  set(name, value, label, runs, clear = () => {}) {
    if (runs === null) this._filters.delete(name);
    else this._filters.set(name, { label, runs: new Set(runs), value, clear });
    this._notify();
  },

  /** The name and the value of each filter. */
  values() {
    return [...this._filters].map(([name, { value }]) => [name, value]);
  },

  /** Sets these filters, and no others. A value that means nothing sets none. */
  restore(values) {
    this.clear();
    for (const [name, value] of values) this.setters.get(name.split(" ")[0])?.(value, name);
  },

  has(name) {
    return this._filters.has(name);
  },

  remove(name) {
    const filter = this._filters.get(name);
    this._filters.delete(name);
    filter?.clear();
    this._notify();
  },

  clear() {
    const filters = [...this._filters.values()];
    this._filters.clear();
    for (const filter of filters) filter.clear();
    this._notify();
  },

  /** The indexes of the selected runs; with `but`, as if that filter were not there. */
  runs(but = null) {
    const filters = [...this._filters].filter(([name]) => name !== but).map(([, filter]) => filter);
    return store.data.runs
      .map((_, index) => index)
      .filter((index) => filters.every((filter) => filter.runs.has(index)));
  },

  filters() {
    return [...this._filters];
  },

  listen(listener) {
    this._listeners.push(listener);
  },

  _notify() {
    for (const listener of this._listeners) listener();
  },
};

function showSelection() {
  const all = store.data.runs.length;
  const selected = selection.runs();
  const filters = selection.filters();
  byId("count").replaceChildren(
    make("strong", { text: count(selected.length) }),
    ` of ${plural(all, "run")} selected`,
  );
  byId("filters").replaceChildren(
    ...filters.map(([name, filter]) =>
      make("li", {
        children: [
          make("button", {
            type: "button",
            class: "filter",
            title: "Remove this filter",
            on: { click: () => selection.remove(name) },
            children: [make("span", { text: filter.label }), make("span", { text: "✕", aria_hidden: "true" })],
          }),
        ],
      }),
    ),
  );
  byId("clear").hidden = !filters.length;
  byId("save").disabled = !selected.length;
  byId("save").textContent = `Save ${plural(selected.length, "run")} as JSONL`;
}

/** The selected runs, line for line as they were recorded. */
function saveSelection() {
  const lines = selection.runs().flatMap((index) => store.lines(index));
  const blob = new Blob([lines.map((line) => `${line}\n`).join("")], { type: "application/jsonl" });
  const link = make("a", { href: URL.createObjectURL(blob), download: "selected-runs.jsonl" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
