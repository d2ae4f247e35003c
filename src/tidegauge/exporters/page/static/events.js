// Recent events: loop onsets, interventions and ends of runs. The newest is on top.

import { make, plural, say, time, words } from "./text.js";

const MOST = 200;
const host = () => document.getElementById("events");

const KINDS = {
  loop: ["loop", (one) => `loop onset at step ${one.step}`],
  result_streak: ["stuck", (one) => `repeated result at step ${one.step}`],
  failed_rounds: ["stuck", (one) => `failed rounds at step ${one.step}`],
  nudge: ["nudge", (one) => `nudged at step ${one.step}: ${words(one.why)}`],
  block: ["block", (one) => `call blocked at step ${one.step}: ${words(one.why)}`],
  stop: ["stop", (one) => `stopped at step ${one.step}: ${words(one.why)}`],
  would_stop: [
    "would stop",
    (one) => `would have been stopped at step ${one.step}: ${words(one.why)}`,
  ],
  ended: ["ended", (one) => `${words(one.why)} after ${plural(one.step, "step")}`],
};

const ONSETS = ["loop", "result_streak", "failed_rounds"];
const FILTERS = {
  matter: (one) => !(one.what === "ended" && one.why === "success"),
  onsets: (one) => ONSETS.includes(one.what),
  interventions: (one) => !ONSETS.includes(one.what) && one.what !== "ended",
  ends: (one) => one.what === "ended",
  all: () => true,
};

export class Events {
  /** @param choose called with the key of the selected run */
  constructor(choose) {
    this.choose = choose;
    this.last = 0;
    this.select = document.getElementById("events-filter");
    this.select.addEventListener("change", () => this.filter(this.select.value));
  }

  /** Shows only these events; successful ends only when they are asked for. */
  filter(name) {
    this.select.value = name;
    for (const item of host().children) this.hide(item);
    host().scrollTop = 0;
  }

  hide(item) {
    item.hidden = !FILTERS[this.select.value](item.event);
  }

  clear() {
    this.last = 0;
    host().replaceChildren();
  }

  /** Shows and returns the new ones. */
  show(events) {
    const list = host();
    const fresh = events.filter((one) => one.number > this.last);
    for (const one of fresh) {
      this.last = one.number;
      list.prepend(this.item(one));
    }
    while (list.children.length > MOST) list.lastChild.remove();
    const shown = [...list.children].some((one) => !one.hidden);
    document.getElementById("no-events").hidden = shown;
    return fresh;
  }

  item(one) {
    const [kind, text] = KINDS[one.what] ?? [words(one.what), () => `at step ${one.step}`];
    const item = make("li");
    item.event = { what: one.what, why: one.why };
    this.hide(item);
    const button = make("button", "event");
    button.type = "button";
    button.dataset.key = one.key;
    button.dataset.what = one.what === "ended" ? one.why : one.what;
    const when = make("time", "quiet", time(one.time));
    when.dateTime = new Date(one.time * 1000).toISOString();
    const agent = make("bdi", "agent");
    say(agent, one.agent || one.run);
    button.append(when, make("span", "badge", kind), agent, make("span", "text", text(one)));
    button.addEventListener("click", () => this.choose(one.key));
    item.append(button);
    return item;
  }
}
