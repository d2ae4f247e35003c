// What the page knows: unpacked from the file, and read from there.
"use strict";

const store = {
  /** Everything but the recorded lines. */
  data: null,
  _lines: null,
  _starts: [],

  async open() {
    const [library, data, lines] = await Promise.all(["library", "data", "lines"].map(unpacked));
    document.head.append(make("script", { text: library })); // the policy knows its hash
    this.data = JSON.parse(data);
    this._lines = lines === "" ? [] : lines.split("\n");
    let start = 0;
    for (const run of this.data.runs) {
      this._starts.push(start);
      start += run.line_count;
    }
    this.agents = [...new Set(this.data.runs.map((run) => run.agent))];
  },

  /** The lines a run was recorded in, as they were. */
  lines(index) {
    const start = this._starts[index];
    return this._lines.slice(start, start + this.data.runs[index].line_count);
  },

  /** Whether a text occurs in a run's lines, whatever its case. */
  mentions(index, text) {
    const start = this._starts[index];
    this._lower ??= [];
    this._lower[index] ??= this._lines
      .slice(start, start + this.data.runs[index].line_count)
      .join("\n")
      .toLowerCase();
    return this._lower[index].includes(text);
  },

  agentColour(agent) {
    return colourOf(this.agents.indexOf(agent));
  },
};

async function unpacked(id) {
  const letters = atob(byId(id).content.textContent.trim());
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at); // from() takes long
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(stream).text();
  byId(id).remove();
  return text;
}

const nameOfGroup = (group) =>
  [group.agent || "no agent", group.task_group, group.memory && `memory ${group.memory}`]
    .filter(Boolean)
    .join(" · ");
