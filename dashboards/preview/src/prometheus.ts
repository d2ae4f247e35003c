// Asks Prometheus as Grafana's data source does: steps, variables, legends and the shapes of answers.
import {
  DataFrameDTO,
  DataQuery,
  DataQueryRequest,
  DataQueryResponse,
  DataSourceApi,
  DataSourceInstanceSettings,
  FieldType,
  Labels,
  MetricFindValue,
  rangeUtil,
  ScopedVars,
} from "@grafana/data";
import { SceneObject, sceneGraph } from "@grafana/scenes";

const SCRAPED_EVERY = 1; // seconds: `timeInterval` of the data source in src/tidegauge/dashboards/provisioning

export interface PromQuery extends DataQuery {
  expr: string;
  legendFormat?: string;
  instant?: boolean;
  format?: "time_series" | "table" | "heatmap";
}

interface Series {
  metric: Labels;
  value?: [number, string];
  values?: Array<[number, string]>;
}

export class Prometheus extends DataSourceApi<PromQuery> {
  settings: DataSourceInstanceSettings;
  interval = `${SCRAPED_EVERY}s`;

  constructor(private address: string) {
    const meta = { id: "prometheus", name: "Prometheus", info: { logos: {} } };
    const settings = { id: 1, uid: "preview", name: "Prometheus", type: "prometheus", meta, jsonData: {} };
    super(settings as unknown as DataSourceInstanceSettings);
    this.settings = settings as unknown as DataSourceInstanceSettings;
  }

  async query(request: DataQueryRequest<PromQuery>): Promise<DataQueryResponse> {
    const asked = request.targets.filter((target) => !target.hide);
    const answers = await Promise.all(asked.map((target) => this.frames(target, request, asked.length > 1)));
    return { data: answers.flat() };
  }

  async metricFindQuery(query: { query: string }, options?: { scopedVars?: ScopedVars }): Promise<MetricFindValue[]> {
    const [, series, label] = /^label_values\((.*), (\w+)\)$/s.exec(query.query)!;
    const parameters = { "match[]": interpolated(series, options?.scopedVars) };
    const values: string[] = await this.get(`label/${label}/values`, parameters);
    return values.map((text) => ({ text }));
  }

  async testDatasource() {
    return { status: "success", message: "" };
  }

  private async frames(target: PromQuery, request: DataQueryRequest, several: boolean): Promise<DataFrameDTO[]> {
    const step = Math.max(SCRAPED_EVERY, request.intervalMs / 1000);
    const own = {
      __range: `${request.range.to.diff(request.range.from, "seconds")}s`,
      __interval: rangeUtil.secondsToHms(step),
      __rate_interval: rangeUtil.secondsToHms(Math.max(step + SCRAPED_EVERY, 4 * SCRAPED_EVERY)),
    };
    const vars = Object.fromEntries(Object.entries(own).map(([name, value]) => [name, { text: value, value }]));
    const query = interpolated(target.expr, { ...request.scopedVars, ...vars });
    const [start, end] = [request.range.from, request.range.to].map((time) => Math.floor(time.unix() / step) * step);
    const { result } = target.instant
      ? await this.get("query", { query, time: `${request.range.to.unix()}` })
      : await this.get("query_range", { query, start: `${start}`, end: `${end}`, step: `${step}` });
    const found = result as Series[];
    if (target.format === "table") {
      return found.length ? [table(target, found, several)] : [];
    }
    const frames = found.map((series) => frame(target, query, series, step));
    return target.format === "heatmap" ? byBucket(frames) : frames;
  }

  private async get(path: string, parameters: Record<string, string>) {
    const answer = await fetch(`${this.address}/api/v1/${path}?${new URLSearchParams(parameters)}`);
    const body = await answer.json();
    if (body.status !== "success") {
      throw new Error(`${body.error}: ${parameters.query}`);
    }
    return body.data;
  }
}

// Several values of a variable become one regular expression, as in Grafana.
function interpolated(text: string, vars: ScopedVars = {}): string {
  const inside = vars.__sceneObject?.value.valueOf() as SceneObject;
  return sceneGraph.interpolate(inside, text, vars, (value: unknown) =>
    Array.isArray(value) && value.length > 1 ? `(${value.join("|")})` : String(value),
  );
}

function samples(series: Series): Array<[number, string]> {
  return series.values ?? [series.value!];
}

function frame(target: PromQuery, query: string, series: Series, step: number): DataFrameDTO {
  const { __name__: metric, ...labels } = series.metric;
  const named = target.legendFormat && target.legendFormat !== "__auto";
  const legend = named
    ? target.legendFormat!.replace(/{{\s*(.+?)\s*}}/g, (_, label) => series.metric[label] ?? "")
    : Object.keys(labels).length === 0
      ? (metric ?? query)
      : undefined;
  const times = samples(series).map(([time]) => 1000 * time);
  const values = samples(series).map(([, value]) => number(value));
  return {
    refId: target.refId,
    name: legend,
    fields: [
      { name: "Time", type: FieldType.time, values: times, config: { interval: 1000 * step } },
      { name: "Value", type: FieldType.number, values, labels, config: { displayNameFromDS: legend } },
    ],
  };
}

function table(target: PromQuery, found: Series[], several: boolean): DataFrameDTO {
  const rows = found.flatMap((series) => samples(series).map(([time, value]) => ({ time, value, metric: series.metric })));
  const labels = [...new Set(found.flatMap((series) => Object.keys(series.metric)))].sort();
  return {
    refId: target.refId,
    fields: [
      { name: "Time", type: FieldType.time, values: rows.map((row) => 1000 * row.time) },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        config: { filterable: true },
        values: rows.map((row) => row.metric[label] ?? ""),
      })),
      { name: several ? `Value #${target.refId}` : "Value", type: FieldType.number, values: rows.map((row) => number(row.value)) },
    ],
  };
}

// Prometheus counts each bucket with all that are below it: what is in one alone is the difference.
function byBucket(frames: DataFrameDTO[]): DataFrameDTO[] {
  const upto = ({ fields }: DataFrameDTO) => number(fields[1].labels!.le);
  const sorted = [...frames].sort((one, other) => upto(one) - upto(other));
  const counts = sorted.map(({ fields }) => new Map(fields[0].values!.map((time, index) => [time, fields[1].values![index]])));
  return sorted.map(({ fields: [time, value], ...rest }, index) => {
    const values = value.values!.map((count, at) => Math.max(0, count - (counts[index - 1]?.get(time.values![at]) ?? 0)));
    return { ...rest, fields: [time, { ...value, values }] };
  });
}

function number(text: string): number {
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text);
}
