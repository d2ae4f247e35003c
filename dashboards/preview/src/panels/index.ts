// The panels of the dashboards by Grafana's names for them: its plugins come with its server only,
// so each is put together here from the parts that they are made of.
import { PanelPlugin } from "@grafana/data";

import { bargauge } from "./bargauge";
import { heatmap } from "./heatmap";
import { stat } from "./stat";
import { stateTimeline } from "./statetimeline";
import { table } from "./table";
import { timeseries } from "./timeseries";

export const panelPlugins: Record<string, PanelPlugin<any, any>> = {
  bargauge,
  heatmap,
  stat,
  "state-timeline": stateTimeline,
  table,
  timeseries,
};
