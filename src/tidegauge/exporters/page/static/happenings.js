// What happened lately: loops that set in, interventions, runs that ended. The newest is on top.

import { make, plural, say, time, words } from "./text.js";

const MOST = 100;
const host = () => document.getElementById("happenings");

const KINDS = {
  cycle: ["loop", (one) => `a loop set in at step ${one.step}`],
  result_streak: ["stuck", (one) => `the same result again and again, at step ${one.step}`],
  failed_rounds: ["stuck", (one) => `round after round failed, at step ${one.step}`],
  nudge: ["nudge", (one) => `nudged at step ${one.step}: ${words(one.why)}`],
  block: ["block", (one) => `call blocked at step ${one.step}: ${words(one.why)}`],
  stop: ["stop", (one) => `stopped at step ${one.step}: ${words(one.why)}`],
  would_stop: [
    "would stop",
    (one) => `would have been stopped at step ${one.step}: ${words(one.why)}`,
  ],
  ended: ["ended", (one) => `${words(one.why)} after ${plural(one.step, "step")}`],
};

export class Happenings {
  /** @param choose called with the key of a run that is chosen here */
  constructor(choose) {
    this.choose = choose;
    this.last = 0;
  }

  clear() {
    this.last = 0;
    host().replaceChildren();
  }

  /** Shows those that are new, and gives them back. */
  show(happenings) {
    const list = host();
    const fresh = happenings.filter((one) => one.number > this.last);
    for (const one of fresh) {
      this.last = one.number;
      list.prepend(this.item(one));
    }
    while (list.children.length > MOST) list.lastChild.remove();
    return fresh;
  }

  item(one) {
    const [kind, told] = KINDS[one.what] ?? [words(one.what), () => `at step ${one.step}`];
    const item = make("li");
    const button = make("button", "happening");
    button.type = "button";
    button.dataset.key = one.key;
    button.dataset.what = one.what === "ended" ? one.why : one.what;
    const when = make("time", "quiet", time(one.time));
    when.dateTime = new Date(one.time * 1000).toISOString();
    const agent = make("bdi", "agent");
    say(agent, one.agent || one.run);
    button.append(when, make("span", "badge", kind), agent, make("span", "told", told(one)));
    button.addEventListener("click", () => this.choose(one.key));
    item.append(button);
    return item;
  }
}
