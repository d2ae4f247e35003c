// The view and the filters in the address, so that a reload, a bookmark and Back keep them.
"use strict";

const address = {
  /** The view in the address, such as "run/3". */
  get view() {
    return location.hash.slice(1).split("?")[0];
  },

  /** Writes the filters of the selection behind the view. */
  write() {
    const filters = new URLSearchParams(selection.values()).toString();
    const hash = `#${this.view}${filters ? `?${filters}` : ""}`;
    if (hash !== location.hash) history.replaceState(null, "", hash);
  },

  /** Sets the filters in the address. An address without any leaves them as they are. */
  read() {
    const [, filters] = location.hash.split(/\?(.*)/s);
    if (filters === undefined || filters === new URLSearchParams(selection.values()).toString()) return;
    selection.restore(new URLSearchParams(filters));
  },
};

/** Numbers in a short text: [1, 2, 3, 7] is "1-3.7". */
function packNumbers(numbers) {
  const sorted = [...new Set(numbers)].sort((one, other) => one - other);
  const parts = [];
  for (const number of sorted) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(".");
}

/** The numbers below a limit in such a text. */
function unpackNumbers(text, limit) {
  const numbers = [];
  for (const part of text.split(".")) {
    const [from, to = from] = part.split("-").map(Number);
    for (let number = from; number <= to && number < limit; number++) numbers.push(number);
  }
  return numbers;
}
