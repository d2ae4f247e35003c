// A dashboard of Grafana's schema v1 as a scene: its variables, time, rows and panels.
import { DataSourceRef, DataTransformerConfig } from "@grafana/schema";
import {
  DataSourceVariable,
  EmbeddedScene,
  IntervalVariable,
  QueryVariable,
  SceneDataTransformer,
  SceneGridItem,
  SceneGridLayout,
  SceneGridRow,
  SceneObject,
  SceneQueryRunner,
  SceneTimePicker,
  SceneTimeRange,
  SceneVariableSet,
  VariableValueSelectors,
  VizPanel,
} from "@grafana/scenes";
import type { DataQuery, FieldConfigSource } from "@grafana/data";

interface Place {
  x: number;
  y: number;
  w: number;
  h: number;
}

interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: Place;
  datasource: DataSourceRef;
  interval?: string;
  maxDataPoints?: number;
  panels?: Panel[];
  targets: DataQuery[];
  transformations?: DataTransformerConfig[];
  options?: object;
  fieldConfig?: FieldConfigSource;
}

interface Variable {
  name: string;
  label?: string;
  type: string;
  query: unknown;
  datasource: DataSourceRef;
  multi?: boolean;
  includeAll?: boolean;
  allValue?: string;
  current?: { value: string | string[]; text: string | string[] };
  refresh: number;
  sort: number;
}

export function sceneOf(board: any, asked: URLSearchParams): EmbeddedScene {
  const time = (name: "from" | "to") => {
    const given = asked.get(name);
    return given ? new Date(Number(given)).toISOString() : board.time[name];
  };
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from: time("from"), to: time("to"), timeZone: "utc" }),
    $variables: new SceneVariableSet({
      variables: board.templating.list.map((variable: Variable) => variableOf(variable, asked.getAll(`var-${variable.name}`))),
    }),
    controls: [new VariableValueSelectors({}), new SceneTimePicker({})],
    body: new SceneGridLayout({ children: rowsOf(board.panels) }),
  });
}

function variableOf(variable: Variable, given: string[]): any {
  const { name, label, type, datasource, multi, includeAll, allValue, refresh, sort } = variable;
  const chosen = given.length ? (multi ? given : given[0]) : variable.current?.value;
  const value = Array.isArray(chosen) && chosen[0] === "$__all" ? "$__all" : chosen;
  switch (type) {
    case "datasource":
      return new DataSourceVariable({ name, label, pluginId: variable.query as string });
    case "interval":
      return new IntervalVariable({ name, label, intervals: (variable.query as string).split(","), value: value as string });
    case "query":
      return new QueryVariable({
        name,
        label,
        datasource,
        query: variable.query as string,
        isMulti: multi,
        includeAll,
        allValue,
        refresh,
        sort,
        ...(value === undefined ? {} : { value, text: value === "$__all" ? "All" : value }),
      });
    default:
      throw new Error(`variable ${name}: ${type} is not known here`);
  }
}

// A row holds what follows it, up to the next one.
function rowsOf(panels: Panel[]): SceneObject[] | any {
  const rows: SceneGridRow[] = [];
  const children: Array<SceneGridRow | SceneGridItem> = [];
  // Collapsed rows hold their panels themselves; here, they are open.
  for (const panel of panels.flatMap((one) => [one, ...(one.type === "row" ? (one.panels ?? []) : [])])) {
    const { x, y, w, h } = panel.gridPos;
    if (panel.type === "row") {
      const row = new SceneGridRow({ title: panel.title, x, y, width: w, height: h, children: [], isCollapsible: true });
      rows.push(row);
      children.push(row);
      continue;
    }
    const item = new SceneGridItem({ x, y, width: w, height: h, body: panelOf(panel) });
    const row = rows.at(-1);
    if (row) {
      row.setState({ children: [...row.state.children, item] });
    } else {
      children.push(item);
    }
  }
  return children;
}

function panelOf(panel: Panel): VizPanel {
  const { datasource, targets: queries, interval: minInterval, maxDataPoints, transformations } = panel;
  const asking = new SceneQueryRunner({ datasource, queries, minInterval, maxDataPoints, maxDataPointsFromWidth: !maxDataPoints });
  return new VizPanel({
    key: `panel-${panel.id}`,
    pluginId: panel.type,
    title: panel.title,
    description: panel.description,
    options: panel.options ?? {},
    fieldConfig: panel.fieldConfig,
    $data: transformations?.length ? new SceneDataTransformer({ $data: asking, transformations }) : asking,
  });
}
