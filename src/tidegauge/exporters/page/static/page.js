// Polls the server as often as it allows, and shows the answer. A hidden page does not poll.

import { ChosenRun } from "./chosen.js";
import { FleetView } from "./fleet.js";
import { Events } from "./events.js";
import { RunList } from "./runs.js";
import { count, make, say } from "./text.js";

const PATIENCE = 5000; // milliseconds for an answer
const AGAIN = 1000; // between attempts while there is none
const AT_ONCE = 40; // after the user selected, scrolled or searched

const at = (id) => document.getElementById(id);

class Unanswered extends Error {}

const LOST = [TypeError, DOMException, Unanswered]; // how a lost connection shows

class Page {
  constructor() {
    const choose = (key) => this.choose(key);
    this.fleet = new FleetView(choose, (tile) => this.pressedTile(tile));
    this.runs = new RunList(choose, () => this.soon());
    this.events = new Events(choose);
    this.chosen = new ChosenRun();
    this.process = null;
    this.key = null; // of the selected run
    this.byHand = false; // whether the user selected it
    this.asked = null; // the run that the last answer was about
    this.find = "";
    this.filters = { trouble: "", agent: "", group: "", sort: "" };
    this.asking = false;
    this.due = 0; // time of the next poll
    at("find").addEventListener("input", (event) => {
      this.find = event.target.value.trim();
      at("list").scrollTop = 0;
      this.soon();
    });
    for (const name of ["trouble", "agent", "group"]) {
      at(name).addEventListener("change", (event) => this.filter({ [name]: event.target.value }));
    }
    for (const button of document.querySelectorAll(".columns button")) {
      button.addEventListener("click", () => {
        const { sort } = button.dataset;
        this.filter({ sort: sort === this.filters.sort ? "" : sort });
      });
    }
    at("back").addEventListener("click", () => this.leave());
    say(at("address"), new URL("metrics", location.href).href);
    document.addEventListener("keydown", (event) => this.pressed(event));
    document.addEventListener("visibilitychange", () => this.soon());
    this.ask();
  }

  pressed(event) {
    const finding = document.activeElement === at("find");
    if (event.key === "/" && !finding && !event.ctrlKey && !event.metaKey && !event.altKey) {
      at("find").focus();
      event.preventDefault();
    } else if (event.key === "Escape" && document.body.classList.contains("reading")) {
      this.leave();
    } else if (event.key === "Escape" && finding) {
      at("list").focus();
    } else if (event.key === "ArrowDown" && finding) {
      at("list").focus();
      event.preventDefault();
    }
  }

  pressedTile({ trouble, events }) {
    if (events) this.events.filter(events);
    else this.filter({ trouble, agent: "", group: "" });
  }

  /** Show other runs, or in another order. */
  filter(some) {
    Object.assign(this.filters, some);
    for (const name of ["trouble", "agent", "group"]) at(name).value = this.filters[name];
    for (const button of document.querySelectorAll(".columns button")) {
      button.setAttribute("aria-pressed", String(button.dataset.sort === this.filters.sort));
    }
    at("list").scrollTop = 0;
    this.soon();
  }

  /** What the filters offer: the names of active agents and groups, and the one that is set. */
  offer(name, found) {
    const set = this.filters[name];
    const names = ["", ...(set && !found.includes(set) ? [set] : []), ...found];
    const select = at(name);
    if (names.join("\n") === [...select.options].map((one) => one.value).join("\n")) return;
    const first = select.options[0];
    select.replaceChildren(
      first,
      ...names.slice(1).map((one) => {
        const option = make("option", "", one);
        option.value = one;
        return option;
      }),
    );
    select.value = set;
  }

  /** Back from the run to the list, on a phone. */
  leave() {
    document.body.classList.remove("reading");
    at("list").focus();
  }

  choose(key) {
    document.body.classList.add("reading"); // a phone shows either the runs or one of them
    this.key = key;
    this.byHand = true;
    this.runs.chosen = key;
    this.runs.draw();
    this.soon();
  }

  soon() {
    this.wait(AT_ONCE);
  }

  wait(milliseconds) {
    const due = performance.now() + milliseconds;
    if (this.timer && this.due <= due) return;
    clearTimeout(this.timer);
    this.due = due;
    this.timer = setTimeout(() => this.ask(), milliseconds);
  }

  async ask() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.asking) {
      this.wait(AT_ONCE);
      return;
    }
    if (document.hidden) return;
    this.asking = true;
    let pause = AGAIN;
    try {
      const answer = await this.fetch();
      this.show(answer);
      pause = 1000 * answer.pause;
      this.connected("live");
    } catch (error) {
      this.connected("disconnected");
      if (!LOST.some((kind) => error instanceof kind)) console.error(error);
    } finally {
      this.asking = false;
      this.wait(pause);
    }
  }

  async fetch() {
    const asked = new URLSearchParams({ ...this.runs.window, after: this.events.last });
    if (this.key !== null) asked.set("run", this.key);
    for (const [name, value] of Object.entries({ ...this.filters, find: this.find })) {
      if (value) asked.set(name, value);
    }
    const answer = await fetch(`page/live?${asked}`, {
      cache: "no-store",
      signal: AbortSignal.timeout(PATIENCE),
    });
    if (!answer.ok) throw new Unanswered(answer.status);
    return answer.json();
  }

  connected(state) {
    document.body.dataset.connection = state;
    say(at("connection"), state === "live" ? "live" : "disconnected, trying again");
  }

  show(answer) {
    const first = answer.process !== this.process; // earlier events are not new
    if (first && this.process !== null) this.forget();
    this.process = answer.process;
    const { fleet, looping, runs, chosen } = answer;
    const fresh = this.events.show(answer.events);
    const onsets = first ? [] : fresh.filter((one) => one.what === "loop");
    this.fleet.show(answer);
    this.fleet.announce(onsets, fleet);
    this.runs.onset(onsets.map((one) => one.key));
    const running = count(fleet.running);
    const { trouble, agent, group } = this.filters;
    const some = Boolean(this.find || trouble || agent || group);
    say(at("total"), some ? `${count(runs.total)} of ${running}` : running);
    say(at("nothing"), some ? "No such run is active." : "No run is active.");
    if (answer.invitation) {
      say(at("invitation"), answer.invitation.words);
      say(at("lines"), answer.invitation.lines);
    }
    at("start").hidden = some || fleet.running > 0 || fleet.ended > 0;
    this.offer("agent", fleet.agents);
    this.offer("group", fleet.groups);
    this.runs.show(runs, answer.time);
    if (this.key === null) this.chosen.clear("No run is selected");
    else if (chosen !== null) this.chosen.show(chosen, { now: answer.time, contents: answer.contents });
    else if (this.asked === this.key) this.chosen.clear("The run is no longer known");
    this.asked = this.key;
    const last = fleet.running ? [] : answer.events.slice(-1);
    this.suggest(looping, [...runs.rows, ...last], chosen);
  }

  /** Until the user selects a run: follows a looping run, the first one, or the last that ended. */
  suggest(looping, others, chosen) {
    if (this.byHand) return;
    const troubled = chosen?.trouble === "looping" && !chosen.finished;
    const [next] = looping.length && !troubled ? looping : this.key === null || !chosen ? others : [];
    if (next === undefined || next.key === this.key) return;
    this.key = next.key;
    this.runs.chosen = next.key;
    this.soon();
  }

  /** Another process answers now: drop all data. */
  forget() {
    this.events.clear();
    this.key = null;
    this.byHand = false;
    this.runs.chosen = null;
    this.soon();
  }
}

new Page();
