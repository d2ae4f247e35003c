// One run: where it went, where it looped, and every step as it was recorded.
"use strict";

const STEPS_AT_ONCE = 100;
const DOT = 16;
let shownRun = null;

function showRun(index) {
  const run = store.data.runs[index];
  shownRun = index;
  byId("run-name").textContent = run.run;
  const outcome = byId("run-outcome");
  outcome.textContent = nameOfOutcome(outcomeOf(run));
  outcome.dataset.outcome = outcomeOf(run);
  byId("run-task").textContent = run.task;
  const ordered = selection.runs();
  const at = ordered.indexOf(index);
  for (const [id, to] of [["previous", ordered[at - 1]], ["next", at < 0 ? undefined : ordered[at + 1]]]) {
    const link = byId(id);
    if (to === undefined) link.removeAttribute("href");
    else link.href = `#run/${to}`;
  }
  showFacts(run);
  const marks = marksOf(run);
  showTimeline(run, marks);
  showGraph(run, marks);
  charts.show("run-chart", () => runChart(run, marks));
  showRunScores(index);
  showSteps(run, index, marks);
}

/** The measurements of a run: names and texts. */
function factsOf(run) {
  return [
    ["Agent", run.agent_name ? `${run.agent_name} (counted as ${run.agent})` : run.agent || ABSENT],
    ["Task group", run.task_group || ABSENT],
    ["Steps", run.t_max ? `${count(run.steps)} of ${count(run.t_max)}` : count(run.steps)],
    ["AUV", share(run.auv)],
    ["Loop ratio", share(run.loop_ratio)],
    ["Loops", loopsOf(run)],
    ["Lost in loops", lostOf(run)],
    ["Stale score, highest", count(run.stale_score_max)],
    ["Result streak, longest", count(run.result_streak_max)],
    ["Failed rounds in a row", count(run.failed_rounds_max)],
    ["Exploration error", share(run.exploration_error)],
    ["Exploitation error", share(run.exploitation_error)],
    ["Novelty", share(run.novelty)],
    ["Tokens", count(run.tokens)],
    ["Overall score", decimals(run.overall_score, 2)],
  ];
}

function showFacts(run) {
  const facts = factsOf(run).filter(([, value]) => value !== ABSENT);
  byId("run-facts").replaceChildren(
    ...facts.map(([name, value]) => make("div", { children: [make("dt", { text: name }), make("dd", { text: value, title: value })] })),
  );
}

/** The loops in words: period, repeats, first repeated step. */
function loopsOf({ listed_loops: loops }) {
  const texts = loops.slice(0, 2).map(([first, period, repeats]) => `${plural(period, "step")}, repeated ${times(repeats)}, since step ${first}`);
  if (loops.length > texts.length) texts.push(`${count(loops.length - texts.length)} more`);
  return texts.join("; ") || "none";
}

/** What its loops cost. */
function lostOf({ loop_steps: steps, lost_tokens: tokens }) {
  return plural(steps, "step") + (absent(tokens) ? "" : `, ${count(tokens)} tokens`);
}

/** The mark of each step: loop, failure, exploration error, intervention. */
function marksOf(run) {
  const column = (name) => run.step[name] ?? [];
  return run.walk.map((place, t) => ({
    place,
    loop: column("loop")[t] === true,
    failed: column("failed")[t] === true,
    exploration: column("exploration_error")[t] === true,
    exploitation: column("exploitation_error")[t] === true,
    progress: column("progress")[t] === true,
    interventions: run.interventions.filter(([step]) => step === t),
  }));
}

const kindOf = (mark) =>
  mark.interventions.length ? "intervention" : mark.loop ? "loop" : mark.failed || mark.exploration || mark.exploitation ? "error" : "plain";
const labelOf = (run, place) => run.places[place] || `place ${place + 1}`;
const placeHue = (place) => 30 + ((170 + place * 185.4) % 300); // never red, which is for loops

function showTimeline(run, marks) {
  const stays = [];
  marks.forEach((mark, t) => {
    const last = stays.at(-1);
    if (last && last.place === mark.place) last.steps.push(t);
    else stays.push({ place: mark.place, steps: [t] });
  });
  let x = 0;
  const blocks = stays.map((stay) => {
    const width = stay.steps.length * DOT + 6;
    const block = draw("g", {
      transform: `translate(${x} 0)`,
      children: [
        draw("title", { text: labelOf(run, stay.place) }),
        draw("rect", { class: "stay", width: width - 2, height: 44, rx: 5, style: { "--hue": "" } }),
        ...stay.steps.map((t, at) =>
          draw("circle", {
            cx: at * DOT + DOT / 2 + 2,
            cy: 22,
            r: 5,
            class: `dot ${kindOf(marks[t])}`,
            data_step: t,
            on: { click: () => goToStep(t) },
            children: [draw("title", { text: `step ${t}: ${run.step.name[t]}\n${labelOf(run, stay.place)}` })],
          }),
        ),
      ],
    });
    block.style.setProperty("--hue", placeHue(stay.place));
    x += width;
    return block;
  });
  const ticks = [];
  let position = 0;
  for (const stay of stays) {
    stay.steps.forEach((t, at) => {
      if (t % 5 === 0) ticks.push(draw("text", { x: position + at * DOT + DOT / 2 + 2, y: 60, text: t }));
    });
    position += stay.steps.length * DOT + 6;
  }
  byId("timeline").replaceChildren(
    draw("svg", {
      width: Math.max(x, 1),
      height: 66,
      role: "img",
      aria_label: `${plural(stays.length, "stay")} at ${plural(run.places.length, "place")}, ${plural(stays.length - run.places.length, "return")}; the steps are listed below`,
      children: [...blocks, ...ticks],
    }),
  );
  byId("timeline-legend").replaceChildren(
    ...[["loop", "in a loop"], ["error", "failed, or an error"], ["intervention", "intervention"]]
      .filter(([kind]) => marks.some((mark) => kindOf(mark) === kind))
      .map(([kind, text]) => make("span", { children: [make("i", { class: `mark ${kind}` }), text] })),
  );
}

function showGraph(run, marks) {
  const [width, height, margin] = [520, 300, 26];
  const spots = run.graph.map(([x, y]) => [margin + x * (width - 2 * margin), margin + (1 - y) * (height - 2 * margin)]);
  const moves = new Map();
  const stays = new Map();
  marks.forEach((mark, t) => {
    stays.set(mark.place, (stays.get(mark.place) ?? 0) + 1);
    if (t + 1 === marks.length) return;
    const [from, to] = [mark.place, marks[t + 1].place];
    if (from >= spots.length || to >= spots.length) return;
    const key = `${from} ${to}`;
    const move = moves.get(key) ?? { from, to, times: 0, loop: false };
    move.times += 1;
    move.loop ||= mark.loop;
    moves.set(key, move);
  });
  const ends = marks.length ? [marks[0].place, marks.at(-1).place] : [];
  const looping = new Set(marks.filter((mark) => mark.loop).map((mark) => mark.place));
  const arrow = (id, kind) =>
    draw("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: kind ? 11 : 7, markerHeight: kind ? 11 : 7, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse", children: [draw("path", { d: "M0 0 8 4 0 8z", class: `arrow ${kind}` })] });
  byId("graph").replaceChildren(
    draw("svg", {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      aria_label: `${plural(run.places.length, "place")}, ${plural(moves.size, "move")} between them, ${plural(looping.size, "place")} in loops`,
      children: [
        draw("defs", { children: [arrow("arrow", ""), arrow("arrow-loop", "loop")] }),
        ...[...moves.values()].sort((one, other) => one.loop - other.loop).map((move) =>
          draw("path", {
            d: movePath(spots[move.from], spots[move.to]),
            class: move.loop ? "move loop" : "move",
            marker_end: `url(#${move.loop ? "arrow-loop" : "arrow"})`,
            style: { strokeWidth: Math.min(1.2 + 0.4 * (move.times - 1), 3.2) },
            children: [draw("title", { text: plural(move.times, "time") })],
          }),
        ),
        ...spots.map(([x, y], place) => {
          const spot = draw("g", {
            class: `place ${looping.has(place) ? "loop" : ""} ${ends[0] === place ? "first" : ""} ${ends[1] === place ? "last" : ""}`,
            children: [
              draw("circle", { cx: x, cy: y, r: 9 }),
              draw("text", { x, y: y + 3.5, text: place + 1 }),
              draw("title", { text: `${labelOf(run, place)}\n${plural(stays.get(place) ?? 0, "action")} here` }),
            ],
          });
          spot.style.setProperty("--hue", placeHue(place));
          return spot;
        }),
      ],
    }),
  );
  byId("places").replaceChildren(
    ...spots.map((_, place) => {
      const swatch = make("i", { class: "swatch round", text: place + 1 });
      swatch.style.setProperty("--hue", placeHue(place));
      const actions = make("span", { class: "quiet", text: plural(stays.get(place) ?? 0, "action") });
      return make("li", { children: [swatch, make("span", { class: "name", text: labelOf(run, place), title: labelOf(run, place) }), actions] });
    }),
  );
  byId("graph-note").textContent =
    run.places.length > spots.length ? `The first ${spots.length} of ${plural(run.places.length, "place")}` : `${plural(run.places.length, "place")}; red where it loops`;
}

function movePath([x1, y1], [x2, y2]) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length < 1) return `M${x1 - 6} ${y1 - 7}c-16 -24 28 -24 14 -2`;
  const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
  const bow = Math.min(18, length / 6); // there and back are two lines
  const [mx, my] = [(x1 + x2) / 2 - dy * bow, (y1 + y2) / 2 + dx * bow];
  const reach = 11;
  const fromAngle = Math.atan2(my - y1, mx - x1);
  const toAngle = Math.atan2(my - y2, mx - x2);
  return `M${x1 + reach * Math.cos(fromAngle)} ${y1 + reach * Math.sin(fromAngle)}Q${mx} ${my} ${x2 + reach * Math.cos(toAngle)} ${y2 + reach * Math.sin(toAngle)}`;
}

function runChart(run, marks) {
  const steps = run.walk.map((_, t) => t);
  const line = (name, title, colour, axis) => ({ x: steps, y: run.step[name] ?? [], name: title, mode: steps.length > 200 ? "lines" : "lines+markers", line: { color: charts.colour(colour), width: 2, shape: "hv" }, marker: { size: 4 }, yaxis: axis, connectgaps: false, hovertemplate: `step %{x}: ${title} %{y}<extra></extra>` });
  const traces = [line("stale", "stale score", "--amber", "y")];
  if (run.step.frontier) traces.push(line("frontier", "frontier", "--tide", "y"));
  if (run.step.pending?.some((pending) => pending > 0)) traces.push(line("pending", "pending tasks", "--violet", "y"));
  const shapes = [];
  marks.forEach((mark, t) => {
    if (mark.loop) shapes.push({ type: "rect", xref: "x", yref: "paper", x0: t - 0.5, x1: t + 0.5, y0: 0, y1: 1, fillcolor: charts.colour("--red"), opacity: 0.12, line: { width: 0 }, layer: "below" });
    if (mark.interventions.length) shapes.push({ type: "line", xref: "x", yref: "paper", x0: t, x1: t, y0: 0, y1: 1, line: { color: charts.colour("--violet"), width: 2, dash: "dot" } });
  });
  return {
    traces,
    layout: { xaxis: { title: { text: "step" }, rangemode: "tozero", dtick: steps.length < 12 ? 1 : undefined }, yaxis: { rangemode: "tozero", dtick: Math.max(...(run.step.stale ?? [0]), ...(run.step.frontier ?? [0])) < 6 ? 1 : undefined }, shapes, showlegend: true, legend: { y: 1.02, yanchor: "bottom" }, margin: { t: 30 }, hovermode: "closest" },
  };
}

function showRunScores(index) {
  const given = store.data.scores.filter((score) => score.runs.includes(index));
  byId("run-scores-card").hidden = !given.length;
  new SortedTable(byId("run-scores"), [
    { title: "Competency", show: (score) => make("span", { class: "nowrap", text: capital(inWords(score.competency)) }) },
    { title: "Score", number: true, show: (score) => (score.score === null ? "not applicable" : String(score.score)) },
    { title: "Why", show: (score) => score.reason || ABSENT },
    {
      title: "Steps",
      show: (score) =>
        make("span", { children: score.steps.map((t) => make("button", { type: "button", class: "link", text: t, on: { click: () => goToStep(t) } })) }),
    },
  ]).show(given);
}

let addSteps = () => {};

function showSteps(run, index, marks) {
  const lines = store.lines(index);
  const list = byId("steps");
  const looping = marks.filter((mark) => mark.loop).length;
  byId("steps-note").textContent = looping ? `${looping} of ${count(marks.length)} in loops; arrows move between steps` : `${count(marks.length)}; arrows move between steps`;
  list.replaceChildren();
  list.scrollTop = 0;
  let shown = 0;
  addSteps = (upTo = shown + STEPS_AT_ONCE) => {
    const next = marks.slice(shown, upTo).map((mark, at) => stepItem(run, lines, mark, shown + at, "li"));
    list.append(...next);
    next.forEach((item) => finder.mark(item));
    shown += next.length;
    byId("more-steps").hidden = shown >= marks.length;
  };
  finder.show(searched(), stepTexts(run, lines));
  addSteps();
}

/** The calls of a step as they were recorded, each with its result. */
function callsOf(run, lines, t) {
  const recorded = JSON.parse(lines[run.step.line[t]]);
  const later = run.step.outcome_line && run.step.outcome_line[t] !== run.step.line[t] ? JSON.parse(lines[run.step.outcome_line[t]]) : recorded;
  const calls = recorded.calls ?? [recorded];
  const results = later.calls ?? [later];
  return calls.map((call, at) => ({ action: call.action, args: call.args, outcome: results[at]?.outcome ?? (calls.length > 1 ? later.outcome : undefined) }));
}

const textOf = (value) => (absent(value) ? "" : typeof value === "string" ? value : JSON.stringify(value));

/** What is shown of each step, as text. */
const stepTexts = (run, lines) =>
  run.walk.map((_, t) => [run.step.name[t], ...callsOf(run, lines, t).flatMap((call) => [textOf(call.args), textOf(call.outcome)])].join("\n"));

/** A step in an element: an item of the transcript, or one side of a comparison. */
function stepItem(run, lines, mark, t, tag) {
  const calls = callsOf(run, lines, t);
  const badge = (kind, text) => make("span", { class: "badge", data_kind: kind, text });
  const badges = [
    mark.loop ? badge("loop", "↻ loop") : null,
    mark.failed ? badge("error", "failed") : null,
    mark.exploration ? badge("error", "exploration error") : null,
    mark.exploitation ? badge("error", "exploitation error") : null,
    mark.progress ? badge("progress", "progress") : null,
    ...mark.interventions.map(([, what, why]) => badge("intervention", `${inWords(what)}${why ? `: ${inWords(why)}` : ""}`)),
  ];
  const swatch = make("i", { class: "swatch round", title: labelOf(run, mark.place), text: mark.place + 1 });
  swatch.style.setProperty("--hue", placeHue(mark.place));
  return make(tag, {
    ...(tag === "li" ? { id: `step-${t}`, tabindex: t ? -1 : 0 } : {}),
    class: kindOf(mark),
    children: [
      make("span", { class: "t", text: t }),
      swatch,
      make("div", {
        class: "what",
        children: [
          make("p", { class: "head", children: [make("strong", { text: run.step.name[t] }), ...badges] }),
          ...calls.flatMap((call) => [
            calls.length > 1 ? make("p", { class: "quiet", text: call.action }) : null,
            content("", call.args),
            content("→", call.outcome),
          ]),
        ],
      }),
    ],
  });
}

/** Arguments or a result. Long texts are folded. */
function content(mark, value) {
  if (absent(value) || value === "") return null;
  const text = textOf(value);
  const shown = make("pre", { text, class: mark ? "outcome" : "arguments" });
  if (text.length <= 320 && text.split("\n").length <= 5) return shown;
  return make("details", { children: [make("summary", { children: [make("pre", { text: `${shortened(text.split("\n").slice(0, 4).join("\n"), 300)} …`, class: mark ? "outcome" : "arguments" })] }), shown] });
}

/** Scrolls to a step, which is added to the list if it is not there yet. */
function showStep(t) {
  if (!byId(`step-${t}`)) addSteps(t + STEPS_AT_ONCE);
  const item = byId(`step-${t}`);
  item.scrollIntoView({ block: "center" });
  return item;
}

const goToStep = (t) => t < store.data.runs[shownRun].walk.length && showStep(t).focus({ preventScroll: true });

function stepKeys(event) {
  const item = event.target.closest("#steps > li");
  if (!item || event.target !== item) return;
  const to = { ArrowDown: item.nextElementSibling, ArrowUp: item.previousElementSibling }[event.key];
  if (!to) return;
  event.preventDefault();
  to.focus();
  to.scrollIntoView({ block: "nearest" });
}
