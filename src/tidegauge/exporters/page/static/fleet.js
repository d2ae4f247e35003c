// The sentence at the top, the runs that loop, and the numbers of the fleet.

import {
  ABSENT, amount, count, loopOf, make, nameOf, plural, priceOf, say, share, troubledFor,
} from "./text.js";

const at = (id) => document.getElementById(id);

/** One sentence that says whether something loops. */
function sentenceOf(fleet) {
  const of = `of ${plural(fleet.running, "run")}`;
  const are = (number) => `${count(number)} ${of} ${number === 1 ? "is" : "are"}`;
  if (fleet.looping) return `${are(fleet.looping)} looping`;
  if (!fleet.running) return "Nothing runs";
  if (fleet.stuck) return `Nothing loops; ${are(fleet.stuck)} stuck`;
  return "Nothing loops";
}

export class FleetView {
  /**
   * @param choose called with the key of the selected run
   * @param filter called with the trouble that a tile filters by, or with the events it shows
   */
  constructor(choose, filter) {
    this.choose = choose;
    this.chips = new Map();
    for (const tile of document.querySelectorAll(".tiles button")) {
      tile.addEventListener("click", () => filter(tile.dataset));
    }
  }

  show({ fleet, looping, time }) {
    const calm = fleet.running ? "fine" : "idle";
    const state = fleet.looping ? "looping" : fleet.stuck ? "stuck" : calm;
    at("verdict").dataset.state = state;
    say(at("sentence"), sentenceOf(fleet));
    at("looping-tile").dataset.state = state;
    say(at("running"), count(fleet.running));
    const spent = priceOf(fleet.dollars, fleet);
    say(at("ended"), [`${amount(fleet.ended)} ended`, spent].filter(Boolean).join(", "));
    say(at("loops"), count(fleet.looping));
    say(at("stuck"), `${count(fleet.stuck)} stuck`);
    say(at("success"), share(fleet.success_rate));
    const judged = `of ${plural(fleet.judged, "ended run")}`;
    say(at("judged"), fleet.judged ? judged : "no run is judged yet");
    say(at("ratio"), share(fleet.loop_ratio));
    say(at("steps"), `of ${amount(fleet.steps)} steps`);
    say(at("lost"), fleet.lost_steps === null ? "—" : plural(fleet.lost_steps, "step"));
    const lost = priceOf(fleet.lost_dollars, fleet);
    say(at("tokens"), [`${amount(fleet.lost_tokens)} tokens`, lost].filter(Boolean).join(", "));
    const counts = fleet.interventions;
    const made = counts && (counts.stop ?? 0) + (counts.block ?? 0) + (counts.nudge ?? 0);
    say(at("interventions"), count(made));
    say(at("observed"), counts ? `${amount(counts.would_stop ?? 0)} would have stopped` : "—");
    document.title = fleet.looping ? `(${fleet.looping}) looping · tidegauge` : "tidegauge";
    this.showLooping(looping, fleet.looping, time);
  }

  showLooping(looping, all, now) {
    const chips = looping.map((run) => {
      const chip = this.chips.get(run.key) ?? this.chip(run.key);
      say(chip.firstChild, nameOf(run));
      const lasts = troubledFor(run, now);
      const most = lasts && lasts !== ABSENT ? `, for ${lasts}` : "";
      say(chip.lastChild, run.loop ? `${loopOf(run.loop)}${most}` : "");
      return chip;
    });
    this.chips = new Map(looping.map((run, index) => [run.key, chips[index]]));
    const more = all - looping.length;
    if (more > 0) chips.push(make("span", "quiet", `and ${count(more)} more`));
    const host = at("looping");
    const shown = [...host.children];
    const same = chips.length === shown.length && chips.every((chip, i) => chip === shown[i]);
    if (!same) host.replaceChildren(...chips);
  }

  chip(key) {
    const chip = make("button", "chip");
    chip.type = "button";
    chip.append(make("bdi", "agent"), make("span"));
    chip.addEventListener("click", () => this.choose(key));
    return chip;
  }

  /** Announces new loops to screen readers. */
  announce(onsets, fleet) {
    if (!onsets.length) return;
    const first = onsets.at(-1);
    const more = onsets.length > 1 ? `, and ${onsets.length - 1} more` : "";
    const now = `${sentenceOf(fleet)}.`;
    say(at("announcer"), `Loop: ${nameOf(first)} at step ${first.step}${more}. ${now}`);
  }
}
