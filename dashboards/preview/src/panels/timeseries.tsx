// Values over time, by the graph of @grafana/ui.
import { DataFrame, FieldColorModeId, FieldType, PanelPlugin, PanelProps } from "@grafana/data";
import { TimeSeries } from "@grafana/ui";
import { useMemo } from "react";

import { customSettings, isEmpty, Nothing } from "./parts";

function Panel({ data, width, height, timeRange, timeZone, options, fieldConfig }: PanelProps) {
  const frames = useMemo(() => data.series.map(finite), [data.series]);
  if (isEmpty(data.series)) {
    return <Nothing {...{ width, height, fieldConfig }} />;
  }
  return (
    <TimeSeries
      frames={frames}
      structureRev={data.structureRev}
      timeRange={timeRange}
      timeZone={timeZone}
      width={width}
      height={height}
      legend={options.legend}
      options={options}
    />
  );
}

// Without what cannot be drawn.
function finite(frame: DataFrame): DataFrame {
  const drawn = (value: number) => (Number.isFinite(value) ? value : null);
  const fields = frame.fields.map((field) =>
    field.type === FieldType.number ? { ...field, values: field.values.map(drawn) } : field,
  );
  return { ...frame, fields };
}

export const timeseries = new PanelPlugin(Panel).useFieldConfig({
  standardOptions: { color: { defaultValue: { mode: FieldColorModeId.PaletteClassic } } } as any,
  useCustomConfig: customSettings({
    drawStyle: "line",
    lineInterpolation: "linear",
    lineWidth: 1,
    fillOpacity: 0,
    gradientMode: "none",
    showPoints: "auto",
    pointSize: 5,
    spanNulls: false,
    insertNulls: false,
    stacking: { mode: "none", group: "A" },
    barAlignment: 0,
    barWidthFactor: 0.6,
    fillBelowTo: undefined,
    lineStyle: undefined,
    axisPlacement: "auto",
    axisLabel: "",
    axisColorMode: "text",
    axisCenteredZero: false,
    axisBorderShow: false,
    axisSoftMin: undefined,
    axisSoftMax: undefined,
    axisWidth: undefined,
    scaleDistribution: { type: "linear" },
    thresholdsStyle: { mode: "off" },
    hideFrom: { tooltip: false, viz: false, legend: false },
  }),
});
