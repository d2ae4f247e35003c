// Charts in the colors of the page, drawn when visible, and again when the colors change.
"use strict";

const charts = {
  _drawn: new Map(), // element id -> what draws it

  /** Draws a chart: `build` gives its traces and its layout, `listen` takes the element. */
  show(id, build, listen = null) {
    const first = !this._drawn.has(id);
    this._drawn.set(id, build);
    const { traces, layout } = build();
    const element = byId(id);
    Plotly.react(element, traces, this._layout(layout), {
      displaylogo: false,
      responsive: true,
      // A fixed list, because some buttons would send the chart to a server.
      modeBarButtons: [["zoom2d", "pan2d", "select2d", "lasso2d", "resetScale2d"]],
      doubleClickDelay: 350,
    });
    if (first && listen) listen(element);
  },

  again() {
    for (const [id, build] of this._drawn) if (byId(id)?.offsetParent) this.show(id, build);
  },

  forget(id) {
    this._drawn.delete(id);
    Plotly.purge(byId(id));
  },

  colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  },

  _layout(layout) {
    const [ink, quiet, rule, card] = ["--ink", "--quiet", "--rule", "--card"].map((name) => this.colour(name));
    const axis = {
      gridcolor: rule,
      zerolinecolor: rule,
      linecolor: rule,
      tickfont: { color: quiet, size: 12 },
      title: { font: { color: quiet, size: 12 }, standoff: 8 },
      automargin: true,
    };
    const axes = {};
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key)))
      axes[name] = merged(axis, layout[name]);
    return merged(
      {
        font: { family: getComputedStyle(document.body).fontFamily, color: ink, size: 13 },
        paper_bgcolor: card,
        plot_bgcolor: card,
        margin: { l: 48, r: 16, t: 8, b: 40 },
        hoverlabel: { bgcolor: card, bordercolor: rule, font: { color: ink, size: 12.5 }, align: "left" },
        legend: { font: { color: quiet, size: 12 }, orientation: "h", y: -0.18, x: 0, xanchor: "left" },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: charts.colour("--tide") },
        newselection: { line: { color: charts.colour("--tide"), width: 1.5 } },
        activeselection: { fillcolor: charts.colour("--tide"), opacity: 0.08 },
      },
      layout,
      axes,
    );
  },
};

function merged(...parts) {
  const whole = {};
  for (const part of parts)
    for (const [key, value] of Object.entries(part))
      whole[key] =
        value && typeof value === "object" && !Array.isArray(value) ? merged(whole[key] ?? {}, value) : value;
  return whole;
}
