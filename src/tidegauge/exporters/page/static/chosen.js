// The selected run: its numbers, its stale score over time, and its last steps, live.

import { Course } from "./charts.js";
import {
  ABSENT, amount, costOf, count, decimals, lasting, loopOf, make, money, say, share, time, words,
} from "./text.js";

const at = (id) => document.getElementById(id);

const FACTS = [
  ["Loop", (run) => (run.loop ? loopOf(run.loop) : run.finished ? ABSENT : "none now")],
  ["Since", (run) => sinceOf(run)],
  ["Cost of the loop", (run) => (run.loop ? costOf(run.loop) : ABSENT)],
  ["Loop ratio", (run) => share(run.loop_ratio)],
  ["Stale score", (run) => `${count(run.stale)} (highest ${count(run.stale_max)})`],
  ["Same result in a row", (run) => count(run.streak)],
  ["Failed rounds in a row", (run) => count(run.failed)],
  ["Novelty", (run) => share(run.novelty)],
  ["Not compared (noise)", (run) => leftOutOf(run)],
  ["Progress", (run) => share(run.progress)],
  ["Frontier, pending", (run) => aheadOf(run)],
  ["Steps", (run) => count(run.steps) + (run.t_max === null ? "" : ` of ${count(run.t_max)}`)],
  ["Tokens", (run) => [amount(run.tokens), money(run.dollars)].filter(Boolean).join(", ")],
  ["Policy", (run) => policyOf(run)],
];

/** What was left out before texts were compared: declare a key of the tool, or a function, if it matters. */
function leftOutOf({ left_out: kinds }) {
  const found = Object.entries(kinds ?? {}).sort(([, one], [, other]) => other - one);
  return found.map(([kind, times]) => `${words(kind)} in ${count(times)}`).join(", ") || ABSENT;
}

function aheadOf(run) {
  if (run.frontier === null && run.pending === null) return ABSENT;
  return `${count(run.frontier)}, ${count(run.pending)}`;
}

function sinceOf({ since, loop }) {
  const found = since ?? (loop && { step: loop.first_step, time: loop.since });
  if (!found) return ABSENT;
  const at = [
    ...(found.step === null ? [] : [`step ${count(found.step)}`]),
    ...(found.time === null ? [] : [time(found.time)]),
  ];
  return at.join(", ") || ABSENT;
}

function policyOf(run) {
  if (run.unguarded) {
    const lost = run.lost.length ? `; not measured: ${run.lost.map(words).join(", ")}` : "";
    return `off after an internal error${lost}`;
  }
  if (run.intervention === null) return ABSENT;
  const did = run.intervention === "stop" ? "stopped" : "would stop";
  return `${did} at ${run.intervention_step}: ${words(run.intervention_reason)}`;
}

function stateOf(run, now) {
  if (run.finished) return run.outcome === "unknown" ? "ended" : words(run.outcome);
  const state = { looping: "looping", stuck: "stuck", fine: "running" }[run.trouble];
  const since = run.since ? run.since.time : run.started;
  return typeof since === "number" ? `${state} · ${lasting(now - since)}` : state;
}

/** The same digest has the same color, so that a loop is a visible pattern. */
function digestOf(digest) {
  const cell = make("td", "digest");
  if (digest === null) return cell;
  const swatch = make("span", "swatch");
  swatch.style.setProperty("--hue", parseInt(digest.slice(0, 4), 16) % 360);
  swatch.style.setProperty("--light", `${38 + 2 * parseInt(digest[4], 16)}%`);
  const code = make("code", "", digest);
  cell.append(swatch, code);
  return cell;
}

function rowsOf(step, contents) {
  const row = make("tr", step.looped ? "looped" : "");
  row.dataset.step = step.step;
  const tool = make("td");
  const name = make("bdi", "tool");
  name.textContent = step.tool;
  tool.append(name);
  if (step.failed) tool.append(make("span", "badge failed", "failed"));
  if (step.intervention) {
    const badge = make("span", "badge", words(step.intervention));
    badge.dataset.what = step.intervention;
    tool.append(badge);
  }
  const result = digestOf(step.outcome);
  if (!step.observed) result.append(make("span", "quiet", "…"));
  row.append(
    make("td", "number", String(step.step)),
    tool,
    digestOf(step.action),
    result,
    make("td", "number", count(step.stale)),
    make("td", "number", decimals(step.seconds, step.seconds < 10 ? 2 : 0)),
    make("td", "number", amount(step.tokens)),
  );
  if (step.looped) row.firstChild.append(make("span", "hidden", ", loop step"));
  if (!contents) return [row];
  const more = make("tr", row.className ? "contents looped" : "contents");
  more.append(make("td"), make("td"));
  const cell = more.lastChild;
  cell.colSpan = 6;
  const shown = [step.arguments, step.result].filter(Boolean);
  shown.forEach((text, index) => {
    const line = make("code", index ? "result" : "arguments");
    line.dir = "auto";
    line.textContent = text;
    cell.append(line);
  });
  return [row, more];
}

const COPIED = 1500; // milliseconds

/** Copies a text; where the browser does not allow it (plain HTTP), selects it instead. */
async function copy(element, button) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    say(button, "Copied");
  } catch {
    getSelection().selectAllChildren(element);
    say(button, "Selected");
  }
  setTimeout(() => say(button, "Copy"), COPIED);
}

export class ChosenRun {
  constructor() {
    at("copy").addEventListener("click", () => copy(at("rule"), at("copy")));
    this.course = null;
    this.drawn = new Map(); // by step: its data and its rows
    this.key = null;
    this.facts = FACTS.map(([name, read]) => {
      const pair = make("div");
      const value = make("dd", "", ABSENT);
      pair.append(make("dt", "", name), value);
      at("facts").append(pair);
      return [value, read];
    });
  }

  /** No run is selected, or the selected run is no longer known. */
  clear(sentence) {
    this.key = null;
    this.drawn.clear();
    say(at("chosen-agent"), sentence);
    say(at("chosen-run"), "");
    say(at("chosen-state"), "");
    at("trace").hidden = true;
    this.showAdvice({ loop: null, advice: null });
    for (const [value] of this.facts) say(value, ABSENT);
    at("trail-rows").replaceChildren();
    this.course?.show(null, [], "fine");
  }

  show(run, { now, contents }) {
    this.course ??= new Course(at("chart"));
    if (run.key !== this.key) {
      this.clear("");
      this.key = run.key;
    }
    say(at("chosen-agent"), run.agent || run.run);
    say(at("chosen-run"), [run.run, run.group, run.model].filter(Boolean).join(" · "));
    at("chosen-run").title = at("chosen-run").textContent;
    say(at("chosen-state"), stateOf(run, now));
    at("chosen-state").dataset.what = run.finished ? run.outcome : run.trouble;
    at("chart").dataset.trouble = run.trouble;
    for (const [value, read] of this.facts) {
      say(value, read(run));
      value.title = value.textContent; // where it does not fit
    }
    this.showTrace(run);
    this.showAdvice(run);
    this.showTrail(run.trail, contents);
    this.course.show(run.key, run.trail, run.trouble);
  }

  showTrace({ trace_id: id, trace_url: url }) {
    const link = at("trace");
    link.hidden = url === null;
    if (url !== null && link.href !== url) link.href = url;
    link.title = id ?? "";
  }

  /** What repeats, and what to do about it. */
  showAdvice({ loop, advice }) {
    const tools = loop?.tools ?? [];
    const rest = loop && loop.period > tools.length ? ` → … (${count(loop.period)} steps)` : "";
    say(at("cycle"), tools.length ? `Repeats: ${tools.join(" → ")}${rest}` : "Repeats nothing now.");
    at("cycle").title = at("cycle").textContent;
    say(at("do"), advice === null ? "Nothing to do." : "What to do: ");
    const link = at("runbook");
    link.hidden = advice === null;
    if (!advice?.address) link.removeAttribute("href");
    else if (link.getAttribute("href") !== advice.address) link.href = advice.address;
    link.title = advice?.address ? "" : "TIDEGAUGE_RUNBOOKS names the address that serves docs/runbooks";
    say(link, advice?.runbook.replaceAll("-", " ") ?? "");
    const rule = advice?.rule ?? null;
    say(at("do-rule"), advice === null ? "" : rule === null ? "." : ". This stops such runs:");
    at("rule-line").hidden = rule === null;
    say(at("rule"), rule ?? "");
    at("declare-line").hidden = advice === null;
    say(at("declare"), advice?.declare ?? "");
  }

  /** The newest step is on top; a row is rebuilt only when its step has changed. */
  showTrail(trail, contents) {
    const body = at("trail-rows");
    const oldest = trail[0]?.step ?? 0;
    for (const [step, { rows }] of this.drawn) {
      if (step >= oldest) continue;
      rows.forEach((row) => row.remove());
      this.drawn.delete(step);
    }
    for (const step of trail) {
      const data = JSON.stringify(step);
      const known = this.drawn.get(step.step);
      if (known?.data === data) continue;
      const rows = rowsOf(step, contents);
      if (known) {
        known.rows[0].before(...rows);
        known.rows.forEach((row) => row.remove());
      } else {
        rows[0].classList.add("new");
        body.prepend(...rows);
      }
      this.drawn.set(step.step, { data, rows });
    }
  }
}
