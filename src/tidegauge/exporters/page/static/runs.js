// The list of runs: only the visible rows, for any number of runs.

import { Sparkline } from "./charts.js";
import { amount, count, make, matterOf, nameOf, plural, say, troubledFor } from "./text.js";

const ROW = 46; // height, as in page.css
const BEYOND = 4; // rows kept ready above and below what is seen
const FLASH = 2500; // milliseconds for which an onset stands out

const STATES = { looping: "looping", stuck: "stuck", fine: "running" };

class Row {
  constructor() {
    this.element = make("div", "row");
    this.element.setAttribute("role", "option");
    this.agent = make("bdi", "agent");
    this.run = make("bdi", "run");
    const who = make("span", "who");
    who.append(this.agent, this.run);
    this.group = make("bdi", "group");
    this.spark = make("span", "spark");
    this.stale = make("span", "stale number");
    this.matter = make("span", "matter");
    this.lasts = make("span", "lasts number");
    this.tokens = make("span", "tokens number");
    this.steps = make("span", "steps number");
    this.element.append(
      who, this.group, this.spark, this.stale, this.matter, this.lasts, this.tokens, this.steps,
    );
    this.chart = null;
  }

  show(run, index, total, { chosen, active, flash, now }) {
    const { element } = this;
    this.chart ??= new Sparkline(this.spark);
    element.id = `run-${run.key}`;
    element.dataset.key = run.key;
    element.dataset.trouble = run.trouble;
    element.classList.toggle("onset", flash);
    element.classList.toggle("active", active);
    element.setAttribute("aria-selected", String(chosen));
    element.setAttribute("aria-posinset", index + 1);
    element.setAttribute("aria-setsize", total);
    const matter = matterOf(run);
    const lasts = troubledFor(run, now);
    element.setAttribute(
      "aria-label",
      [nameOf(run), STATES[run.trouble], matter, plural(run.steps, "step"),
       lasts ? `for ${lasts}` : "",
       run.stale === null ? "" : `stale score ${run.stale}`].filter(Boolean).join(", "),
    );
    say(this.agent, nameOf(run));
    say(this.run, run.run);
    say(this.group, run.group);
    say(this.stale, count(run.stale));
    say(this.matter, matter);
    say(this.lasts, lasts);
    say(this.tokens, amount(run.tokens));
    say(this.steps, count(run.steps));
    this.chart.show(run.scores, run.trouble);
  }
}

export class RunList {
  /**
   * @param choose called with the key of a run that is chosen here
   * @param moved called when other rows come into sight
   */
  constructor(choose, moved) {
    this.list = document.getElementById("list");
    this.rows = document.getElementById("rows");
    this.empty = document.getElementById("empty");
    this.choose = choose;
    this.moved = moved;
    this.slots = [];
    this.known = new Map(); // by index: the run of the last answer
    this.total = 0;
    this.now = 0; // the server's time of the last answer
    this.chosen = null;
    this.active = 0; // index of the row that the arrow keys are at
    this.activeKey = null;
    this.wanted = false; // whether to select that row as soon as it is there
    this.onsets = new Map(); // by key: time of its loop onset
    this.list.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.list.addEventListener("keydown", (event) => this.pressed(event));
    this.list.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.draw()).observe(this.list);
  }

  /** The rows to ask for. */
  get window() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - BEYOND);
    return { first, rows: Math.ceil(this.list.clientHeight / ROW) + 2 * BEYOND };
  }

  show({ total, first, rows }, now) {
    this.now = now;
    this.total = total;
    this.known.clear();
    rows.forEach((run, offset) => this.known.set(first + offset, run));
    rows.forEach((run, offset) => {
      if (run.key === this.activeKey) this.active = first + offset;
    });
    this.chooseActive();
    this.draw();
  }

  /** New loops: highlight their runs for a moment. */
  onset(keys) {
    const now = performance.now();
    for (const [key, since] of this.onsets) if (now - since > FLASH) this.onsets.delete(key);
    for (const key of keys) this.onsets.set(key, now);
  }

  draw() {
    const { first, rows } = this.window;
    const height = `${this.total * ROW}px`;
    if (this.rows.style.height !== height) this.rows.style.height = height;
    while (this.slots.length < rows) {
      const row = new Row();
      this.slots.push(row);
      this.rows.append(row.element);
    }
    const now = performance.now();
    this.active = Math.max(0, Math.min(this.active, this.total - 1));
    this.slots.forEach((row, slot) => {
      // Each index has the same slot while it is in sight, so that scrolling moves few rows.
      const round = Math.floor((first - slot + this.slots.length - 1) / this.slots.length);
      const index = slot + round * this.slots.length;
      const run = index < this.total ? this.known.get(index) : undefined;
      row.element.hidden = !run;
      if (!run) {
        row.element.removeAttribute("id");
        return;
      }
      const place = `translateY(${index * ROW}px)`;
      if (row.element.style.transform !== place) row.element.style.transform = place;
      row.show(run, index, this.total, {
        chosen: run.key === this.chosen,
        active: index === this.active,
        now: this.now,
        flash: now - (this.onsets.get(run.key) ?? -FLASH) < FLASH,
      });
    });
    const active = this.known.get(this.active);
    if (active) this.list.setAttribute("aria-activedescendant", `run-${active.key}`);
    else this.list.removeAttribute("aria-activedescendant");
    this.empty.hidden = this.total > 0;
  }

  scrolled() {
    this.draw();
    const { first, rows } = this.window;
    const last = Math.min(first + rows, this.total) - 1;
    if (!this.known.has(first) || !this.known.has(last)) this.moved();
  }

  pressed(event) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const steps = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
    };
    if (event.key in steps) {
      this.goTo(Math.max(0, Math.min(this.active + steps[event.key], this.total - 1)));
    } else if (event.key === "Enter" || event.key === " ") {
      this.wanted = true;
      this.chooseActive();
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Selects the row of the arrow keys; a missing row as soon as it is there. */
  chooseActive() {
    const run = this.known.get(this.active);
    this.activeKey ??= run?.key ?? null;
    if (!this.wanted || !run) return;
    this.wanted = false;
    this.choose(run.key);
  }

  goTo(index) {
    this.wanted = false;
    this.active = index;
    this.activeKey = this.known.get(index)?.key ?? null;
    const top = index * ROW;
    const { scrollTop, clientHeight } = this.list;
    if (top < scrollTop) this.list.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.list.scrollTop = top + ROW - clientHeight;
    this.draw();
  }

  clicked(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    const key = Number(row.dataset.key);
    this.activeKey = key;
    for (const [index, run] of this.known) if (run.key === key) this.active = index;
    this.choose(key);
  }
}
