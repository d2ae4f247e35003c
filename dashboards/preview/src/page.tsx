// One dashboard: /?board=tidegauge-fleet&prometheus=http://127.0.0.1:9090&from=…&to=…&var-run=…
//
// `from` and `to` are milliseconds since 1970, variables are set as in Grafana. The server gets a
// request when everything is drawn.
import { ThemeContext } from "@grafana/data";
import { config } from "@grafana/runtime";
import { sceneGraph, SceneQueryRunner } from "@grafana/scenes";
import { GlobalStyles, PortalContainer } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import { MemoryRouter } from "react-router-dom";

import { sceneOf } from "./board";
import { actAsGrafana } from "./grafana";

const SETTLED_AFTER = 1500; // milliseconds: the graphs follow their data

async function main() {
  const asked = new URLSearchParams(location.search);
  await actAsGrafana(asked.get("prometheus") ?? "http://127.0.0.1:9090");
  const answer = await fetch(`boards/${asked.get("board") ?? "tidegauge-fleet"}.json`);
  const scene = sceneOf(await answer.json(), asked);
  createRoot(document.getElementById("page")!).render(
    <ThemeContext.Provider value={config.theme2}>
      <GlobalStyles />
      <MemoryRouter>
        <scene.Component model={scene} />
      </MemoryRouter>
      <PortalContainer />
    </ThemeContext.Provider>,
  );
  const asking = sceneGraph.findAllObjects(scene, (part) => part instanceof SceneQueryRunner) as SceneQueryRunner[];
  const timer = setInterval(() => {
    if (asking.every(({ state }) => state.data?.state === "Done" || state.data?.state === "Error")) {
      clearInterval(timer);
      setTimeout(() => fetch("drawn", { method: "POST" }), SETTLED_AFTER);
    }
  }, 100);
}

main();
