// Hits of a search in texts: highlighted, counted, and jumped to.
"use strict";

const MOST_HITS = 500; // of one step

/** What matches a text literally, whatever its case; null for an empty text. */
const matcher = (text) => (text ? new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu") : null);

/** Marks the hits in an element's texts, and unfolds what has some. Returns how many there are. */
function highlight(element, pattern) {
  for (const mark of element.querySelectorAll("mark")) mark.replaceWith(...mark.childNodes);
  element.normalize();
  if (!pattern) return 0;
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  let hits = 0;
  for (const node of texts) {
    const parts = [];
    let end = 0;
    for (const { 0: hit, index } of node.data.matchAll(pattern)) {
      if (hits >= MOST_HITS) break;
      parts.push(node.data.slice(end, index), make("mark", { text: hit }));
      end = index + hit.length;
      hits += 1;
    }
    if (!parts.length) continue;
    const folded = node.parentElement.closest("details");
    if (folded && !node.parentElement.closest("summary")) folded.open = true;
    node.replaceWith(...parts, node.data.slice(end));
  }
  return hits;
}

/** The search in the steps of the run that is shown. */
const finder = {
  _pattern: null,
  _steps: [], // steps with a hit
  _at: -1,

  open() {
    byId("find-text").addEventListener("input", () => this.show(byId("find-text").value));
    byId("find-steps").addEventListener("submit", (event) => {
      event.preventDefault();
      this.jump(1);
    });
    byId("find-previous").addEventListener("click", () => this.jump(-1));
  },

  /** Highlights a text in the steps; `texts` are those of all steps of a run. */
  show(text, texts = this._texts) {
    this._texts = texts;
    const typed = text.trim();
    if (byId("find-text").value.trim() !== typed) byId("find-text").value = typed;
    this._pattern = matcher(typed);
    this._at = -1;
    // The pattern is global: search() starts at the beginning whatever was found before.
    this._steps = this._pattern ? texts.flatMap((one, t) => (one.search(this._pattern) >= 0 ? [t] : [])) : [];
    for (const item of byId("steps").children) this.mark(item);
    this._count();
  },

  /** Marks the hits in a step that is shown. */
  mark(item) {
    highlight(item.querySelector(".what"), this._pattern);
  },

  jump(by) {
    if (!this._steps.length) return;
    const many = this._steps.length;
    this._at = this._at < 0 ? (by > 0 ? 0 : many - 1) : (this._at + by + many) % many;
    showStep(this._steps[this._at]).classList.add("hit");
    this._count();
  },

  _count() {
    for (const item of document.querySelectorAll("#steps > .hit")) if (item.id !== `step-${this._steps[this._at]}`) item.classList.remove("hit");
    const many = this._steps.length;
    byId("find-count").textContent = !this._pattern ? "" : this._at < 0 ? `in ${plural(many, "step")}` : `${this._at + 1} of ${count(many)}`;
    for (const id of ["find-previous", "find-next"]) byId(id).disabled = !many;
  },
};
