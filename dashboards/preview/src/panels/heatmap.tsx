// Buckets over time, as dark as they are full. @grafana/ui has no such graph: this one is drawn
// here, with Grafana's scheme of colours.
import { formattedValueToString, getValueFormat, PanelPlugin, PanelProps } from "@grafana/data";
import { useTheme2 } from "@grafana/ui";
import * as chromatic from "d3-scale-chromatic";

import { isEmpty, Nothing } from "./parts";
import { TimeAxis, TIME_AXIS_HEIGHT } from "./timeaxis";

const AXIS_WIDTH = 50;
const SCALE_HEIGHT = 26;
const SCALE_WIDTH = 200;

function Panel({ data, width, height, timeRange, timeZone, fieldConfig, options }: PanelProps) {
  const theme = useTheme2();
  if (isEmpty(data.series)) {
    return <Nothing {...{ width, height, fieldConfig }} />;
  }
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const x = (time: number) => AXIS_WIDTH + ((time - from) / (to - from)) * (width - AXIS_WIDTH);
  const tall = (height - TIME_AXIS_HEIGHT - SCALE_HEIGHT) / data.series.length;
  const step = data.series[0].fields[0].config.interval ?? 1000;
  const most = options.color.max ?? Math.max(...data.series.flatMap((frame) => frame.fields[1].values));
  const scheme = (chromatic as any)[`interpolate${options.color.scheme}`];
  const colour = (share: number) => scheme(theme.isDark ? 1 - share : share);
  const formatted = (value: number) => formattedValueToString(getValueFormat(options.cellValues?.unit)(value));
  return (
    <svg width={width} height={height}>
      {data.series.map((frame, row) => {
        const y = (data.series.length - 1 - row) * tall;
        return (
          <g key={row}>
            <text x={AXIS_WIDTH - 6} y={y + tall / 2 + 4} fontSize={12} textAnchor="end" fill={theme.colors.text.primary}>
              {frame.name}
            </text>
            {(frame.fields[0].values as number[]).map((time, index) => {
              const value = frame.fields[1].values[index];
              return (
                value > 0 && (
                  <rect key={time} x={x(time - step)} width={x(step) - x(0) + 0.5} y={y} height={tall - 1} fill={colour(Math.min(1, value / most))} />
                )
              );
            })}
          </g>
        );
      })}
      <g transform={`translate(0, ${-SCALE_HEIGHT})`}>
        <TimeAxis {...{ x, from, to, width, height, timeZone }} />
      </g>
      {Array.from({ length: SCALE_WIDTH }, (_, index) => (
        <rect key={index} x={index + 30} width={1.5} y={height - 20} height={8} fill={colour(index / SCALE_WIDTH)} />
      ))}
      <text x={24} y={height - 12} fontSize={11} textAnchor="end" fill={theme.colors.text.primary}>
        {formatted(0)}
      </text>
      <text x={SCALE_WIDTH + 36} y={height - 12} fontSize={11} fill={theme.colors.text.primary}>
        {formatted(most)}
      </text>
    </svg>
  );
}

export const heatmap = new PanelPlugin(Panel).useFieldConfig({});
