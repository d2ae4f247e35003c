// Times below a graph that is drawn here.
import { dateTimeFormat } from "@grafana/data";
import { useTheme2 } from "@grafana/ui";

export const TIME_AXIS_HEIGHT = 22;
const TICKS_APART = 90;
const ROUND_SECONDS = [1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];

interface Props {
  x: (time: number) => number;
  from: number;
  to: number;
  width: number;
  height: number;
  timeZone: string;
}

export function TimeAxis({ x, from, to, width, height, timeZone }: Props) {
  const theme = useTheme2();
  const least = ((to - from) / 1000 / width) * TICKS_APART;
  const every = 1000 * (ROUND_SECONDS.find((seconds) => seconds >= least) ?? 86400);
  const format = every < 60_000 ? "HH:mm:ss" : "HH:mm";
  const ticks: number[] = [];
  for (let time = Math.ceil(from / every) * every; time < to; time += every) {
    ticks.push(time);
  }
  return (
    <>
      {ticks.map((time) => (
        <text key={time} x={x(time)} y={height - 6} fontSize={12} textAnchor="middle" fill={theme.colors.text.primary}>
          {dateTimeFormat(time, { format, timeZone })}
        </text>
      ))}
    </>
  );
}
