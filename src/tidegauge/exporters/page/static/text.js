// Numbers and names as they are shown. What was not measured is a dash, never 0.

export const ABSENT = "—";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en", { hour12: false, timeStyle: "medium" });

export const count = (value) => (value === null ? ABSENT : whole.format(value));
export const amount = (value) =>
  value === null ? ABSENT : value < 10_000 ? whole.format(value) : short.format(value);
export const share = (value) =>
  value === null ? ABSENT : `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)}%`;
export const decimals = (value, digits) => (value === null ? ABSENT : value.toFixed(digits));
export const time = (seconds) => clock.format(seconds * 1000);
export const words = (name) => name.replaceAll("_", " ");
export const plural = (number, one, many = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : many}`;

/** How long something lasts: 0:07, 12:40, 3:05:00. */
export function lasting(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  const parts = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  const [hours, minutes, rest] = parts.map((part) => String(part).padStart(2, "0"));
  return parts[0] ? `${parts[0]}:${minutes}:${rest}` : `${parts[1]}:${rest}`;
}

/** The name of a run for people: its agent, or else the run's id. */
export const nameOf = (run) => run.agent || run.run;

const times = (number) => ({ 1: "once", 2: "twice" })[number] ?? `${count(number)} times`;

/** A loop in words: its period, and how often people say it was repeated, as everywhere. */
export const loopOf = (loop) => `${plural(loop.period, loop.of)}, repeated ${times(loop.times)}`;

/** For how long a run has been in trouble, or has repeated itself as declared; empty, it does not. */
export function troubledFor({ since, loop }, now) {
  if (!since && !loop) return "";
  const began = since ? since.time : loop.since;
  return began === null ? ABSENT : lasting(now - began);
}

export const money = (dollars) =>
  dollars === null ? "" : `$${dollars.toFixed(dollars >= 1 ? 2 : dollars > 0 ? 3 : 0)}`;

/** What all runs cost, or their loops; + stands for tokens without a price. */
export const priceOf = (dollars, { all_priced: all }) =>
  dollars === null ? "" : money(dollars) + (all ? "" : "+");

/** What a loop costs, from its first repeated step on. */
export function costOf({ steps, tokens, dollars }) {
  const spent = tokens === null ? "" : `${amount(tokens)} tokens`;
  return [plural(steps, "step"), spent, money(dollars)].filter(Boolean).join(", ");
}

/** The trouble of a run, in a few words. */
export function matterOf(run) {
  return [troubleOf(run), run.unguarded ? "policy off" : ""].filter(Boolean).join(", ");
}

function troubleOf(run) {
  if (run.loop && !run.loop.exempt) return loopOf(run.loop);
  if (run.loop) return "repeats, as declared";
  if (run.trouble !== "stuck") return "";
  if (run.failed >= 3) return `failed ${run.failed} times in a row`;
  if (run.streak >= 3) return `the same result ${run.streak} times`;
  return "revisits known places";
}

/** Sets a text only where it changes: what stays the same costs no layout. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes an element with a class and, if given, a text. */
export function make(tag, name = "", text = "") {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text) element.textContent = text;
  return element;
}
