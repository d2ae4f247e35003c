// Charts by uPlot.

const SHOWN = 40; // steps that are kept of a run, and scores of a sparkline
const STALE = 5; // up to here the vertical scale always reaches, so that small scores look small

const drawn = new Set();
document.addEventListener("themechange", () => {
  for (const chart of drawn) chart.redraw(false);
});

/** A colour of the style sheet as it is now. */
function colour(element, name) {
  return getComputedStyle(element).getPropertyValue(name).trim() || "gray";
}

const top = (least) => (_, __, most) => [-0.3, Math.max(most ?? 0, least) + 0.4];
const quiet = { cursor: { show: false }, legend: { show: false } };

/** The stale score over the last steps of a run, as a strip: now is at the right. */
export class Sparkline {
  constructor(host) {
    this.host = host;
    this.shown = "";
    const xs = Array.from({ length: SHOWN }, (_, index) => index);
    this.chart = new window.uPlot(
      {
        ...quiet,
        width: 96,
        height: 30,
        padding: [2, 2, 2, 2],
        scales: { x: { time: false, range: [0, SHOWN - 1] }, y: { range: top(STALE) } },
        axes: [{ show: false }, { show: false }],
        series: [
          {},
          {
            stroke: () => colour(host, "--line"),
            fill: () => colour(host, "--area"),
            width: 1.5,
            points: { show: false },
          },
        ],
      },
      [xs, xs.map(() => null)],
      host,
    );
    drawn.add(this.chart);
  }

  show(scores, trouble) {
    const shown = `${trouble} ${scores.join()}`;
    if (shown === this.shown) return;
    this.shown = shown;
    const missing = Array(Math.max(0, SHOWN - scores.length)).fill(null);
    this.chart.setData([this.chart.data[0], [...missing, ...scores]]);
  }
}

/** First and last step of each stretch of steps that follow each other. */
function stretches(steps) {
  const found = [];
  for (const { step } of steps) {
    const last = found.at(-1);
    if (last && last[1] === step - 1) last[1] = step;
    else found.push([step, step]);
  }
  return found;
}

/** The stale score of the selected run by step, with loop steps and interventions. */
export class Course {
  constructor(host) {
    this.host = host;
    this.shown = "";
    this.trail = [];
    const axis = (more) => ({
      stroke: () => colour(host, "--quiet"),
      grid: { stroke: () => colour(host, "--rule"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
      ...more,
    });
    this.chart = new window.uPlot(
      {
        ...quiet,
        width: Math.max(host.clientWidth, 100),
        height: host.clientHeight || 150,
        padding: [8, 12, 0, 0],
        scales: {
          x: { time: false, range: (_, low, high) => [low - 0.5, Math.max(high, low + 9) + 0.5] },
          y: { range: top(STALE) },
        },
        axes: [
          axis({ size: 26, grid: { show: false }, incrs: [1, 2, 5, 10, 20] }),
          axis({ size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 1000] }),
        ],
        series: [
          {},
          {
            stroke: () => colour(host, "--line"),
            fill: () => colour(host, "--area"),
            width: 2,
            points: { show: true, size: 5, fill: () => colour(host, "--line") },
          },
        ],
        hooks: { drawClear: [(chart) => this.mark(chart)] },
      },
      [[0], [null]],
      host,
    );
    drawn.add(this.chart);
    new ResizeObserver(() => {
      this.chart.setSize({ width: Math.max(host.clientWidth, 100), height: host.clientHeight });
    }).observe(host);
  }

  mark(chart) {
    const { ctx, bbox } = chart;
    const across = (step) => chart.valToPos(step, "x", true);
    ctx.save();
    ctx.fillStyle = colour(this.host, "--loop-area");
    for (const [first, last] of stretches(this.trail.filter((step) => step.looped))) {
      const left = across(first - 0.5);
      ctx.fillRect(left, bbox.top, across(last + 0.5) - left, bbox.height);
    }
    ctx.fillStyle = colour(this.host, "--step-in");
    for (const { step, intervention } of this.trail) {
      if (intervention && intervention !== "would_stop") {
        ctx.fillRect(across(step) - 1, bbox.top, 2, bbox.height);
      }
    }
    ctx.restore();
  }

  show(key, trail, trouble) {
    const marks = trail.map(({ step, stale, looped, intervention }) => [
      step, stale, looped, intervention,
    ]);
    const shown = [key, trouble, marks].join();
    if (shown === this.shown) return;
    this.shown = shown;
    this.trail = trail;
    const steps = trail.length ? trail : [{ step: 0, stale: null }];
    this.chart.setData([steps.map((step) => step.step), steps.map((step) => step.stale)]);
  }
}
