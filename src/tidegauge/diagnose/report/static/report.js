// Opens the data of the file, and shows the view in the URL.
"use strict";

const VIEWS = { overview: showOverview, runs: showRuns, patterns: showPatterns, scores: showScores };

function route() {
  const [name, number] = location.hash.slice(1).split("/");
  const isRun = name === "run" && store.data.runs[number] !== undefined;
  const view = isRun ? "run" : name in VIEWS ? name : "overview";
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${view}`;
  for (const link of byId("views").children) {
    if (link.hash === `#${isRun ? "runs" : view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (isRun) {
    showRun(Number(number));
    scrollTo(0, 0);
  } else VIEWS[view]();
  document.title = `${isRun ? store.data.runs[number].run : capital(view)} · tidegauge`;
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
  selection.listen(() => {
    showSelection();
    const view = document.querySelector("main > section:not([hidden])").id.slice(5);
    if (view === "runs" || view === "patterns" || view === "scores") VIEWS[view]();
  });
  byId("clear").addEventListener("click", () => selection.clear());
  byId("save").addEventListener("click", saveSelection);
  byId("more-steps").addEventListener("click", () => addSteps());
  byId("steps").addEventListener("keydown", stepKeys);
  addEventListener("hashchange", route);
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
