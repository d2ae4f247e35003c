// Two runs side by side: their measurements, and their steps in pairs.
"use strict";

/** The runs to compare, in the order in which they were chosen; at most two. */
let compared = [];

function compareRun(index, wanted) {
  compared = compared.filter((one) => one !== index);
  if (wanted) compared = [...compared.slice(-1), index];
  if (compared.length === 2) location.hash = `#compare/${compared.join("/")}`;
  else showCompareHint();
}

function showCompareHint() {
  byId("compare-hint").hidden = compared.length !== 1;
  if (compared.length === 1)
    byId("compare-hint").replaceChildren(
      `Select a second run to compare with ${middleCut(store.data.runs[compared[0]].run, 38)}. `,
      make("button", { type: "button", class: "link", text: "Cancel", on: { click: () => { compareRun(compared[0], false); showRuns(); } } }),
    );
}

function compareBox(row) {
  return make("input", {
    type: "checkbox",
    aria_label: `Compare ${row.run}`,
    checked: compared.includes(row.index),
    on: { change: ({ target }) => { compareRun(row.index, target.checked); showRuns(); } },
  });
}

function showComparison(indexes) {
  const runs = indexes.map((index) => store.data.runs[index]);
  compared = [];
  const facts = runs.map(factsOf);
  const rows = facts[0].map(([name], at) => ({ name, values: facts.map((of) => of[at][1]) })).filter(({ values }) => values.some((value) => value !== ABSENT));
  new SortedTable(byId("compare-facts"), [
    { title: "Measure", show: (row) => make("span", { class: "quiet", text: row.name }) },
    ...runs.map((run, side) => ({
      title: middleCut(run.run, 38),
      help: run.run,
      show: (row) => (row.name === "Outcome" ? outcomeBadge(run) : row.name === "Run" ? make("a", { href: `#run/${indexes[side]}`, text: middleCut(run.run, 60) }) : make("span", { class: row.values[0] === row.values[1] ? "quiet" : "", text: row.values[side] })),
    })),
  ]).show([{ name: "Run", values: ["", ""] }, { name: "Outcome", values: ["", ""] }, { name: "Task", values: runs.map((run) => run.task || ABSENT) }, ...rows]);
  const sides = runs.map((run, side) => ({ run, lines: store.lines(indexes[side]), marks: marksOf(run), texts: stepTexts(run, store.lines(indexes[side])) }));
  const longest = Math.max(...sides.map(({ marks }) => marks.length));
  const shorter = Math.min(...sides.map(({ marks }) => marks.length));
  let same = 0;
  while (same < shorter && sides[0].texts[same] === sides[1].texts[same]) same += 1;
  byId("compare-note").textContent = same === longest ? "Their steps are the same" : same ? `Their first ${plural(same, "step")} are the same` : "Their first steps differ";
  const list = byId("compare-steps");
  list.replaceChildren();
  let shown = 0;
  const more = () => {
    for (const upTo = Math.min(shown + STEPS_AT_ONCE, longest); shown < upTo; shown++)
      list.append(
        make("li", {
          class: shown === same ? "differs" : "",
          children: sides.map(({ run, lines, marks }) => (shown < marks.length ? stepItem(run, lines, marks[shown], shown, "div") : make("div", { class: "none" }))),
        }),
      );
    byId("compare-more").hidden = shown >= longest;
  };
  byId("compare-more").onclick = more;
  more();
}
