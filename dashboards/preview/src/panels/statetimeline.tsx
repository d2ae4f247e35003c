// A band for each series, coloured by its value. @grafana/ui has no such graph: this one is drawn
// here, with the colours and the texts that Grafana gives.
import {
  FieldColorModeId,
  FieldType,
  formattedValueToString,
  getFieldDisplayName,
  PanelPlugin,
  PanelProps,
} from "@grafana/data";
import { useTheme2 } from "@grafana/ui";

import { customSettings, isEmpty, Nothing } from "./parts";
import { TimeAxis, TIME_AXIS_HEIGHT } from "./timeaxis";

const NAME_WIDTH = 110;
const CHARACTER_WIDTH = 7;

function Panel({ data, width, height, timeRange, timeZone, fieldConfig, options }: PanelProps) {
  const theme = useTheme2();
  if (isEmpty(data.series)) {
    return <Nothing {...{ width, height, fieldConfig }} />;
  }
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const x = (time: number) => NAME_WIDTH + ((time - from) / (to - from)) * (width - NAME_WIDTH);
  const bands = data.series.flatMap((frame) => {
    const times: number[] = frame.fields[0].values;
    const step = frame.fields[0].config.interval ?? 1000;
    return frame.fields.filter((field) => field.type !== FieldType.time).map((field) => ({ times, step, field, name: getFieldDisplayName(field, frame, data.series) }));
  });
  const bandHeight = (height - TIME_AXIS_HEIGHT) / bands.length;
  return (
    <svg width={width} height={height}>
      {bands.map(({ times, step, field, name }, row) => (
        <g key={row} transform={`translate(0, ${row * bandHeight})`}>
          <text y={bandHeight / 2 + 4} fontSize={12} fill={theme.colors.text.primary}>
            {name}
          </text>
          {stretches(times, step, field.values, options.mergeValues).map(({ start, end, value }) => {
            const shown = field.display!(value);
            const text = formattedValueToString(shown);
            const wide = x(end) - x(start);
            return (
              <g key={start}>
                <rect x={x(start)} width={Math.max(wide, 1)} y={2} height={bandHeight * 0.9} fill={shown.color} fillOpacity={0.7} />
                {options.showValue !== "never" && text.length * CHARACTER_WIDTH < wide && (
                  <text x={x(start) + 4} y={bandHeight / 2 + 4} fontSize={12} fill={theme.colors.text.primary}>
                    {text}
                  </text>
                )}
              </g>
            );
          })}
        </g>
      ))}
      <TimeAxis {...{ x, from, to, width, height, timeZone }} />
    </svg>
  );
}

// From when to when it was the same value.
function stretches(times: number[], step: number, values: unknown[], merge: boolean) {
  const found: Array<{ start: number; end: number; value: unknown }> = [];
  times.forEach((start, index) => {
    const end = start + step;
    const last = found.at(-1);
    if (merge && last && last.value === values[index] && last.end >= start) {
      last.end = end;
    } else {
      found.push({ start, end, value: values[index] });
    }
  });
  return found;
}

export const stateTimeline = new PanelPlugin(Panel).useFieldConfig({
  standardOptions: { color: { defaultValue: { mode: FieldColorModeId.ContinuousGrYlRd } } } as any,
  useCustomConfig: customSettings({ lineWidth: 0, fillOpacity: 70, spanNulls: false, hideFrom: { viz: false } }),
});
