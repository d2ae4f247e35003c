// Opens the data of the file, and shows the view in the URL.
"use strict";

addEventListener("hashchange", () => {
  if (store.data) address.read(), route();
});

const VIEWS = { overview: showOverview, runs: showRuns, patterns: showPatterns, scores: showScores };

function route() {
  const [name, ...numbers] = address.view.split("/");
  const known = numbers.filter((number) => store.data.runs[number] !== undefined).map(Number);
  const isRun = (name === "run" && known.length === 1) || (name === "compare" && known.length === 2);
  const view = isRun || name in VIEWS ? name : "overview";
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${view}`;
  for (const link of byId("views").children) {
    if (link.hash === `#${isRun ? "runs" : view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (isRun) {
    if (name === "run") showRun(known[0]);
    else showComparison(known);
    scrollTo(0, 0);
  } else VIEWS[view]();
  address.write();
  document.title = `${isRun ? known.map((index) => store.data.runs[index].run).join(", ") : capital(view)} · tidegauge`;
}

async function openReport() {
  try {
    await store.open();
  } catch (error) {
    byId("opening").textContent = `The report cannot be opened: ${error.message}`;
    throw error;
  }
  const { sources, version, contents } = store.data;
  byId("made").textContent = `${sources.length > 3 ? plural(sources.length, "file") : sources.join(", ")} · tidegauge ${version}${contents ? "" : " · without contents"}`;
  openOverview();
  openRuns();
  openPatterns();
  openScores();
  finder.open();
  address.read();
  selection.listen(() => {
    showSelection();
    address.write();
    const view = document.querySelector("main > section:not([hidden])").id.slice(5);
    if (view === "runs" || view === "patterns" || view === "scores") VIEWS[view]();
  });
  byId("clear").addEventListener("click", () => selection.clear());
  byId("save").addEventListener("click", saveSelection);
  byId("compare").addEventListener("click", () => {
    compareRun(shownRun, true);
    if (compared.length === 1) location.hash = "#runs";
  });
  byId("more-steps").addEventListener("click", () => addSteps());
  byId("steps").addEventListener("keydown", stepKeys);
  document.addEventListener("themechange", () => {
    openOverview();
    route();
  });
  byId("opening").hidden = true;
  showSelection();
  route();
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", openReport);
else openReport();
