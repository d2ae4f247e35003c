// All runs together: the groups' numbers, which are the engine's and don't follow the selection.
"use strict";

selection.setters.set("group", (value) => store.data.groups[value] && selectGroup(store.data.groups[value]));
selection.setters.set("tasks", (value) => selectPoints("tasks", unpackNumbers(value, store.data.tasks.length)));

function openOverview() {
  const { runs, groups, memory_index: memory, skipped_lines: skipped } = store.data;
  const known = runs.filter((run) => run.success !== null);
  const tiles = [
    ["Runs", count(runs.length), plural(runs.filter((run) => !run.finished).length, "unfinished", "unfinished")],
    ["Solved", share(known.length ? known.filter((run) => run.success).length / known.length : null), `of ${count(known.length)} known`],
    ["Runs with a loop", count(runs.filter((run) => run.loop_steps > 0).length), share(runs.filter((run) => run.loop_steps > 0).length / (runs.length || 1))],
    ["Steps", count(runs.reduce((sum, run) => sum + run.steps, 0)), `${count(runs.reduce((sum, run) => sum + run.loop_steps, 0))} of them in loops`],
    ["Groups", count(groups.length), plural(store.agents.length, "agent")],
    ["Lines skipped", count(skipped), skipped ? "reported by replay" : "none"],
  ];
  byId("tiles").replaceChildren(
    ...tiles.map(([title, value, more]) =>
      make("div", { children: [make("dt", { text: title }), make("dd", { text: value }), make("dd", { class: "more", text: more })] }),
    ),
  );
  openGroups(groups);
  openMemory(memory);
  openPairs(store.data.memory_pairs);
  openProfiles(store.data.profiles);
  openExploring(groups.filter((group) => group.exploring));
  openFits(store.data.error_fits);
}

function openGroups(groups) {
  const number = (title, field, show, help) => ({ title, number: true, help, value: (group) => group[field], show: (group) => show(group[field]) });
  const bar = (group) => {
    if (absent(group.auv)) return ABSENT;
    const interval = group.auv_interval;
    return make("span", {
      children: [
        share(group.auv),
        make("span", { class: "quiet interval", text: interval ? ` ${share(interval[0])}–${share(interval[1])}` : "" }),
      ],
    });
  };
  const agent = (group) =>
    make("button", {
      type: "button",
      class: "link name-cell",
      title: `Select the runs of this group of ${group.agent || ABSENT}`,
      on: {
        click: () => {
          selectGroup(group);
          location.hash = "#runs";
        },
      },
      children: [make("i", { class: "swatch", style: { background: store.agentColour(group.agent) } }), group.agent || ABSENT],
    });
  const columns = [
    { title: "Agent", value: (group) => group.agent, show: agent },
    { title: "Task group", value: (group) => group.task_group, show: (group) => make("span", { class: "name-cell", title: group.task_group, text: group.task_group || ABSENT }) },
    { title: "Memory", value: (group) => group.memory, show: (group) => group.memory ?? ABSENT },
    number("Runs", "runs", count),
    number("Success", "success_rate", share, "Solved runs / runs whose success is known"),
    number("Success at t_max", "success_at_t_max", share, "Runs solved within their t_max turns / runs with a t_max"),
    { title: "AUV, 95% interval", number: true, value: (group) => group.auv, show: bar, help: "Area under success over turns; the interval is Student's" },
    number("Loop ratio", "loop_ratio", share, "Loop steps / steps"),
    number("With a loop", "looping_runs", count, "Runs with a loop"),
    number("Exploration error", "exploration_error", share, "Errors / steps that had to explore"),
    number("Exploitation error", "exploitation_error", share, "Errors / steps that had to exploit"),
  ];
  new SortedTable(byId("groups"), withValues(columns, groups)).show(groups);
  byId("groups-note").textContent = "Click an agent's name to select its runs";
}

function selectGroup(group) {
  const members = store.data.runs
    .map((run, index) => [run, index])
    .filter(([run]) => run.agent === group.agent && run.task_group === group.task_group && (run.memory ?? null) === group.memory)
    .map(([, index]) => index);
  selection.set("group", String(store.data.groups.indexOf(group)), nameOfGroup(group), members);
}

function openMemory(memory) {
  byId("memory-card").hidden = !memory.length;
  const number = (title, show) => ({ title, number: true, show });
  new SortedTable(byId("memory"), [
    { title: "Task group", show: (row) => row.task_group || ABSENT },
    number("AUV with", (row) => share(row.on)),
    number("AUV without", (row) => share(row.off)),
    number("Memory index", (row) => signed(row.value)),
    number("Standard error", (row) => share(row.stderr)),
  ]).show(memory);
}

const signed = (value) => (value > 0 ? "+" : "") + share(value);

function openPairs(pairs) {
  byId("pairs-card").hidden = !pairs.length;
  new SortedTable(byId("pairs"), [
    { title: "Agent", show: (row) => row.agent || ABSENT },
    { title: "Task group", show: (row) => row.task_group || ABSENT },
    { title: "Arms", show: (row) => `${row.arm} − ${row.against}` },
    { title: "AUV", number: true, show: (row) => `${share(row.auv)} − ${share(row.auv_against)}` },
    { title: "Difference", number: true, show: (row) => signed(row.value) },
    { title: "95% interval", number: true, show: (row) => (absent(row.low) ? ABSENT : `${signed(row.low)} to ${signed(row.high)}`) },
  ]).show(pairs);
}

function openProfiles(profiles) {
  byId("profiles-card").hidden = !profiles.length;
  const axis = (title, field) => ({
    title,
    number: true,
    show: (row) => (absent(row[field]) ? ABSENT : share(row[field]) + (absent(row[`${field}_scaled`]) ? "" : ` (${row[`${field}_scaled`].toFixed(2)})`)),
  });
  new SortedTable(byId("profiles"), [
    { title: "Task group", show: (row) => row.task_group || ABSENT },
    { title: "Agent", show: (row) => row.agent || ABSENT },
    axis("AUV", "auv"),
    axis("1 − loop ratio", "no_loops"),
    axis("Memory index", "memory_index"),
  ]).show(profiles);
}

function openExploring(groups) {
  byId("exploring-card").hidden = !groups.length;
  const part = (_, index) => ({ title: `${10 * index}–${10 * (index + 1)}%`, number: true, show: (group) => share(group.exploring[index]) });
  new SortedTable(byId("exploring"), [{ title: "Group", show: nameOfGroup }, ...Array.from({ length: 10 }, part)]).show(groups);
}

function openFits(fits) {
  byId("fits-card").hidden = !fits.length;
  const number = (title, show) => ({ title, number: true, show });
  new SortedTable(byId("fits"), [
    { title: "Task group", show: (fit) => fit.task_group || ABSENT },
    { title: "Error", show: (fit) => fit.error },
    number("Groups", (fit) => count(fit.groups)),
    number("Slope", (fit) => fit.slope.toFixed(2)),
    number("Intercept", (fit) => fit.intercept.toFixed(2)),
    number("R²", (fit) => (absent(fit.r2) ? ABSENT : fit.r2.toFixed(2))),
  ]).show(fits);
}

function showOverview() {
  charts.show("curves", curves);
  charts.show("tasks", taskPoints, (element) => brushed(element, "tasks", (point) => store.data.tasks.indexOf(point.customdata)));
  byId("comparison").style.height = `${64 + 27 * store.data.groups.length}px`;
  charts.show("comparison", comparison);
}

function curves() {
  const groups = store.data.groups.filter((group) => group.curve);
  const dashes = ["solid", "dash", "dot", "dashdot"];
  const families = [...new Set(groups.map((group) => group.task_group))];
  return {
    traces: groups.map((group) => ({
      x: group.curve.map((_, turn) => turn),
      y: group.curve,
      name: plain(nameOfGroup(group)),
      mode: "lines",
      line: { color: store.agentColour(group.agent), width: 2.2, shape: "hv", dash: store.agents.length > 1 && sameAgentTwice(groups, group) ? dashes[families.indexOf(group.task_group) % 4] : "solid" },
      hovertemplate: `${plain(nameOfGroup(group))}<br>turn %{x}: %{y:.0%}<extra></extra>`,
    })),
    layout: {
      xaxis: { title: { text: "turns" }, rangemode: "tozero" },
      yaxis: { tickformat: ".0%", range: [0, 1.02] },
      hovermode: "closest",
      showlegend: groups.length > 1,
      legend: { orientation: "v", x: 1.01, y: 1 },
      margin: { b: 44 },
    },
  };
}

const sameAgentTwice = (groups, group) => groups.filter((other) => other.agent === group.agent).length > 1;

function taskPoints() {
  const byAgent = new Map();
  for (const task of store.data.tasks) {
    const name = `${task.agent} · ${task.task_group}`;
    if (!byAgent.has(name)) byAgent.set(name, []);
    byAgent.get(name).push(task);
  }
  return {
    traces: [...byAgent].map(([name, tasks]) => ({
      x: tasks.map((task) => task.loop_ratio),
      y: tasks.map((task) => task.auv),
      text: tasks.map((task) => wrapped(task.task || "a task")),
      customdata: tasks,
      name: plain(name),
      mode: "markers",
      marker: { color: store.agentColour(tasks[0].agent), size: 8, opacity: 0.55, line: { width: 0 } },
      selected: { marker: { opacity: 0.95 } },
      unselected: { marker: { opacity: 0.12 } },
      hovertemplate: "%{text}<br>loop ratio %{x:.0%}, AUV %{y:.0%}<extra></extra>",
    })),
    layout: {
      xaxis: { title: { text: "loop ratio" }, tickformat: ".0%", range: [-0.03, 1.03] },
      yaxis: { title: { text: "AUV" }, tickformat: ".0%", range: [-0.04, 1.04] },
      dragmode: "select",
      hovermode: "closest",
      showlegend: false,
    },
  };
}

/** Selects the runs of points of the chart of tasks, or of the map of actions. */
function selectPoints(name, indexes) {
  const [points, one] = name === "tasks" ? [store.data.tasks, "task"] : [store.data.map?.points ?? [], "action"];
  const runs = indexes.flatMap((index) => points[index]?.runs ?? []);
  selection.set(name, packNumbers(indexes), `${plural(indexes.length, one)} of the chart`, indexes.length ? runs : null, () => {
    if (!byId(name).data) return; // it was not drawn
    Plotly.relayout(byId(name), { selections: [] });
    Plotly.restyle(byId(name), { selectedpoints: [null] });
  });
}

/** A selection in a chart is a filter, which is removed with the selection. */
function brushed(element, name, indexOf) {
  element.on("plotly_selected", (covered) => covered?.points.length && selectPoints(name, covered.points.map(indexOf)));
  element.on("plotly_deselect", () => selection.has(name) && selection.remove(name));
}

function comparison() {
  const groups = [...store.data.groups].reverse();
  const metrics = [
    ["success_rate", "success"],
    ["auv", "AUV"],
    ["loop_ratio", "loop ratio"],
    ["exploration_error", "exploration error"],
    ["exploitation_error", "exploitation error"],
  ].filter(([field]) => groups.some((group) => !absent(group[field])));
  const names = [groups.map((group) => plain(shortened(group.task_group || "—", 24))), groups.map((group) => plain(shortened(group.memory ? `${group.agent} (${group.memory})` : group.agent || "—", 32)))];
  const layout = {
    yaxis: { type: "multicategory", dividercolor: charts.colour("--rule"), tickfont: { size: 12 }, range: [-0.6, groups.length - 0.4] },
    margin: { t: 30, b: 30 },
    showlegend: false,
    hovermode: "closest",
    annotations: [],
  };
  const width = 1 / metrics.length;
  const traces = metrics.map(([field, title], index) => {
    const axis = index ? String(index + 1) : "";
    const domain = [index * width + (index ? 0.018 : 0), (index + 1) * width];
    const values = groups.map((group) => group[field] ?? null);
    layout[`xaxis${axis}`] = { domain, tickformat: ".0%", rangemode: "tozero", nticks: 5 };
    layout.annotations.push({ text: title, x: domain[0], y: 1, yshift: 24, xref: "paper", yref: "paper", showarrow: false, xanchor: "left", font: { size: 13 } });
    return {
      x: values,
      y: names,
      xaxis: `x${axis}`,
      yaxis: "y",
      type: "scatter",
      mode: "markers",
      cliponaxis: false,
      marker: { size: 10, color: groups.map((group) => store.agentColour(group.agent)) },
      error_x:
        field === "auv"
          ? {
              type: "data",
              symmetric: false,
              array: groups.map((group) => (group.auv_interval ? group.auv_interval[1] - group.auv : 0)),
              arrayminus: groups.map((group) => (group.auv_interval ? group.auv - group.auv_interval[0] : 0)),
              color: charts.colour("--quiet"),
              thickness: 1.5,
              width: 0,
            }
          : undefined,
      hovertemplate: `${title} %{x:.1%}<extra></extra>`,
    };
  });
  return { traces, layout };
}
