// Numbers and names as shown. A value that was not measured is a dash, never 0.
"use strict";

const ABSENT = "—";
const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const byId = (id) => document.getElementById(id);
const absent = (value) => value === null || value === undefined;
const count = (value) => (absent(value) ? ABSENT : wholeNumber.format(value));
const decimals = (value, digits = 3) => (absent(value) ? ABSENT : value.toFixed(digits));
const share = (value) =>
  absent(value) ? ABSENT : value > 0 && value < 0.0005 ? "<0.1%" : `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)}%`;
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
const times = (number) => ({ 1: "once", 2: "twice" })[number] ?? `${count(number)} times`;
const inWords = (name) => name.replaceAll("_", " ");
const capital = (name) => name.charAt(0).toUpperCase() + name.slice(1);

/** Makes an element. Recorded contents go through `text`, so they are never markup. */
function make(tag, { text, children = [], on = {}, ...attributes } = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  setAttributes(element, attributes);
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** The same for drawings. */
function draw(tag, { text, children = [], on = {}, ...attributes } = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  if (text !== undefined) element.textContent = text;
  setAttributes(element, attributes);
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || absent(value)) continue;
    if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name.replaceAll("_", "-"), value === true ? "" : value);
  }
}

/** A text for the chart library, escaped because it reads some markup. */
const plain = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** A text in short lines, for chart labels. */
function wrapped(text, width = 60, lines = 4) {
  const parts = [];
  for (let rest = text.replace(/\s+/g, " ").trim(); rest && parts.length < lines; ) {
    let cut = rest.length <= width ? rest.length : rest.lastIndexOf(" ", width);
    if (cut < width / 2) cut = Math.min(width, rest.length);
    parts.push(rest.slice(0, cut));
    rest = rest.slice(cut).trim();
    if (rest && parts.length === lines) parts[lines - 1] += " …";
  }
  return parts.map(plain).join("<br>");
}

const shortened = (text, length) => (text.length <= length ? text : `${text.slice(0, length - 1)}…`);

/** A long name without its middle: names of runs differ at their ends. */
const middleCut = (text, length) =>
  text.length <= length ? text : `${text.slice(0, Math.floor(length / 3))}…${text.slice(1 - Math.ceil((2 * length) / 3))}`;

/** The color of a name, the same everywhere. */
const HUES = [199, 24, 145, 280, 345, 48, 225, 95, 172, 0, 318, 258];
function colourOf(index) {
  const dark = isDarkNow();
  const round = Math.floor(index / HUES.length);
  return `hsl(${(HUES[index % HUES.length] + 13 * round) % 360} ${dark ? 62 : 66}% ${dark ? 62 - 8 * (round % 2) : 42 + 10 * (round % 2)}%)`;
}

const isDarkNow = () =>
  document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
