// What judges said: how often each score was given, and a range that selects runs.
"use strict";

const SCORES = [1, 2, 3, 4];

function openScores() {
  selection.setters.set("score", (value, name) => {
    const card = [...document.querySelectorAll(".score")].find((one) => `score ${one.dataset.competency}` === name);
    if (!card) return;
    const selects = [...card.querySelectorAll("select")];
    value.split("-").forEach((level, side) => { if (selects[side]) selects[side].value = level; });
    chooseScores(card.dataset.competency, store.data.scores.filter((score) => score.competency === card.dataset.competency), selects);
  });
  const { scores } = store.data;
  const view = byId("view-scores");
  if (!scores.length) {
    view.append(
      make("article", {
        class: "card wide empty",
        children: [
          make("h2", { text: "No scores yet" }),
          make("p", { text: "A judge, which is a language model of your choice, gives each run a score from 1 to 4 for five competencies: backtracking and exploration, task decomposition, observation reading, self-verification, objective quality." }),
          make("pre", { text: "tidegauge judge runs.jsonl --model PROVIDER:NAME -o scores.jsonl\ntidegauge report runs.jsonl --scores scores.jsonl -o report.html" }),
        ],
      }),
    );
    return;
  }
  for (const competency of new Set(scores.map((score) => score.competency))) {
    const given = scores.filter((score) => score.competency === competency);
    const known = given.filter((score) => score.score !== null);
    const mean = known.length ? known.reduce((sum, score) => sum + score.score, 0) / known.length : null;
    const level = (name, label) =>
      make("label", { children: [label, make("select", { data_bound: name, children: ["", ...SCORES].map((value) => make("option", { value, text: value === "" ? "any" : value })) })] });
    const id = `scores-${competency}`;
    const bounds = [level("from", "From"), level("to", "to")];
    view.append(
      make("article", {
        class: "card score",
        data_competency: competency,
        children: [
          make("header", { children: [make("h2", { text: capital(inWords(competency)) }), make("p", { class: "quiet", text: `mean ${decimals(mean, 2)} of ${plural(known.length, "run")}${given.length > known.length ? `, ${count(given.length - known.length)} without a score` : ""}` })] }),
          make("div", { class: "chart low", id }),
          make("p", { class: "range", children: [...bounds, make("span", { class: "quiet", text: "or drag over the bars" })] }),
        ],
      }),
    );
    const selects = bounds.map((label) => label.querySelector("select"));
    for (const select of selects) select.addEventListener("input", () => chooseScores(competency, given, selects));
  }
}

function chooseScores(competency, given, selects) {
  const [low, high] = selects.map((select, index) => (select.value === "" ? [-Infinity, Infinity][index] : Number(select.value)));
  const open = low === -Infinity && high === Infinity;
  const runs = given.filter((score) => score.score !== null && score.score >= low && score.score <= high).flatMap((score) => score.runs);
  const label = `${inWords(competency)} ${low === -Infinity ? 1 : low}–${high === Infinity ? 4 : high}`;
  selection.set(`score ${competency}`, selects.map((select) => select.value).join("-"), label, open ? null : runs, () => {
    for (const select of selects) select.value = "";
    const chart = byId(`scores-${competency}`);
    if (chart.data) Plotly.relayout(chart, { selections: [] }).then(() => Plotly.restyle(chart, { selectedpoints: [null] }));
  });
}

function showScores() {
  for (const card of document.querySelectorAll(".score")) {
    const competency = card.dataset.competency;
    const selects = [...card.querySelectorAll("select")];
    const given = store.data.scores.filter((score) => score.competency === competency);
    charts.show(
      `scores-${competency}`,
      () => {
        const among = new Set(selection.runs(`score ${competency}`));
        const counts = SCORES.map((level) => given.filter((score) => score.score !== null && Math.round(score.score) === level && score.runs.some((run) => among.has(run))).length);
        return {
          traces: [{ type: "bar", x: SCORES, y: counts, text: counts.map(count), textposition: "outside", cliponaxis: false, marker: { color: charts.colour("--tide") }, unselected: { marker: { opacity: 0.25 } }, hovertemplate: "score %{x}: %{y} runs<extra></extra>" }],
          layout: { xaxis: { tickvals: SCORES, title: { text: "score" }, fixedrange: true, range: [0.4, 4.6] }, yaxis: { visible: false, fixedrange: true }, dragmode: "select", selectdirection: "h", bargap: 0.35, margin: { t: 22, l: 16 } },
        };
      },
      (element) => {
        const choose = (covered) => {
          if (!covered || !covered.points.length) return;
          const levels = covered.points.map((point) => point.x);
          selects[0].value = Math.min(...levels);
          selects[1].value = Math.max(...levels);
          chooseScores(competency, given, selects);
        };
        element.on("plotly_selected", choose);
        element.on("plotly_click", choose);
        element.on("plotly_deselect", () => selection.has(`score ${competency}`) && selection.remove(`score ${competency}`));
      },
    );
  }
}
