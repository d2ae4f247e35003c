// The table of runs, and the form that filters it.
"use strict";

let runsTable = null;

const OUTCOMES = { success: "solved", failure: "not solved", unknown: "not known", stopped: "stopped", error: "error" };
const outcomeOf = (run) => (run.finished ? run.outcome : "unfinished");
const nameOfOutcome = (outcome) => OUTCOMES[outcome] ?? outcome;

const MEASURES = [
  ["auv", "AUV", share],
  ["progress_auv", "progress AUV", share],
  ["loop_ratio", "loop ratio", share],
  ["loops", "loops", count],
  ["steps", "steps", count],
  ["stale_score_max", "stale score", count],
  ["result_streak_max", "result streak", count],
  ["failed_rounds_max", "failed rounds", count],
  ["exploration_error", "exploration error", share],
  ["exploitation_error", "exploitation error", share],
  ["novelty", "novelty", share],
  ["tokens", "tokens", count],
  ["overall_score", "overall score", (value) => decimals(value, 2)],
];

function openRuns() {
  const { runs } = store.data;
  const measured = MEASURES.filter(([field]) => runs.some((run) => !absent(run[field])));
  for (const name of ["text", "agent", "task_group", "outcome", "measure"]) selection.setters.set(name, restoreControl);
  const columns = [
    { title: "Compare", show: compareBox },
    { title: "Run", value: (row) => row.run, show: runLink },
    { title: "Agent", value: (row) => row.agent, show: (row) => make("span", { class: "name-cell", title: row.agent, children: [make("i", { class: "swatch", style: { background: store.agentColour(row.agent) } }), row.agent || ABSENT] }) },
    { title: "Outcome", value: outcomeOf, show: (row) => outcomeBadge(row) },
    ...measured.map(([field, title, show]) => ({ title: capital(title), number: true, value: (row) => row[field], show: (row) => show(row[field]) })),
  ];
  runsTable = new SortedTable(byId("runs-table"), withValues(columns, runs));
  openControls(measured);
}

const outcomeBadge = (run) => make("span", { class: "badge", data_outcome: outcomeOf(run), text: nameOfOutcome(outcomeOf(run)) });

function runLink(row) {
  const link = make("a", {
    href: `#run/${row.index}`,
    class: "run",
    children: [make("span", { text: middleCut(row.run, 38), title: row.run }), make("span", { class: "quiet", text: row.task || row.task_group })],
  });
  highlight(link, matcher(searched()));
  return link;
}

/** The text that the runs are searched for. */
const searched = () => byId("controls").elements.text.value.trim();

function showRuns() {
  showCompareHint();
  runsTable.show(selection.runs().map((index) => ({ index, ...store.data.runs[index] })));
}

function openControls(measured) {
  const { runs } = store.data;
  const groups = [...new Set(runs.map((run) => run.task_group))];
  const outcomes = [...new Set(runs.map(outcomeOf))];
  const option = (value, text) => make("option", { value, text });
  const choice = (name, label, values, named = (value) => value) =>
    make("label", { children: [label, make("select", { name, children: [option("", "any"), ...values.map((value) => option(value, named(value) || ABSENT))] })] });
  const form = byId("controls");
  form.append(
    make("label", { class: "grow", children: ["Text", make("input", { type: "search", name: "text", placeholder: store.data.contents ? "in the run's name, task and steps" : "in the run's name and actions" })] }),
    choice("agent", "Agent", store.agents),
    choice("task_group", "Task group", groups),
    choice("outcome", "Outcome", outcomes, nameOfOutcome),
    make("fieldset", {
      children: [
        make("legend", { text: "Range" }),
        make("select", { name: "measure", aria_label: "Measure", children: measured.map(([field, title]) => option(field, title)) }),
        make("input", { type: "number", step: "any", name: "from", placeholder: "from", aria_label: "From" }),
        make("input", { type: "number", step: "any", name: "to", placeholder: "to", aria_label: "To" }),
      ],
    }),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  let typing = 0;
  form.addEventListener("input", ({ target }) => {
    if (target.type !== "search") return filterBy(form, target.name);
    clearTimeout(typing); // looking through all steps waits for the word's end
    typing = setTimeout(() => filterBy(form, target.name), 200);
  });
}

/** Sets a control to its value in the address. */
function restoreControl(value, name) {
  const form = byId("controls");
  if (name === "measure") {
    const [field, from, to] = value.split(":");
    form.elements.measure.value = field;
    if (form.elements.measure.selectedIndex < 0) form.elements.measure.selectedIndex = 0;
    [form.elements.from.value, form.elements.to.value] = [from ?? "", to ?? ""];
  } else form.elements[name].value = value;
  filterBy(form, name);
}

function filterBy(form, name) {
  const value = (field) => form.elements[field].value;
  const undo = (...fields) => () => fields.forEach((field) => (form.elements[field].value = ""));
  const where = (test) => store.data.runs.map((run, index) => [run, index]).filter(([run, index]) => test(run, index)).map(([, index]) => index);
  if (name === "text") {
    const text = value("text").trim().toLowerCase();
    selection.set("text", text, `“${text}”`, text ? where((_, index) => store.mentions(index, text)) : null, undo("text"));
  } else if (["measure", "from", "to"].includes(name)) {
    const [field, title] = MEASURES.find(([field]) => field === value("measure"));
    const low = value("from") === "" ? -Infinity : Number(value("from"));
    const high = value("to") === "" ? Infinity : Number(value("to"));
    const open = low === -Infinity && high === Infinity;
    const label = `${title} ${low === -Infinity ? "" : `≥ ${low}`} ${high === Infinity ? "" : `≤ ${high}`}`;
    // What was not measured is in no range.
    selection.set("measure", [field, value("from"), value("to")].join(":"), label, open ? null : where((run) => !absent(run[field]) && run[field] >= low && run[field] <= high), undo("from", "to"));
  } else {
    const wanted = value(name);
    const of = name === "outcome" ? outcomeOf : (run) => run[name];
    const label = name === "outcome" ? nameOfOutcome(wanted) : wanted;
    selection.set(name, wanted, label, form.elements[name].selectedIndex > 0 ? where((run) => of(run) === wanted) : null, undo(name));
  }
}
