// Rows and columns.
import { cacheFieldDisplayNames, PanelPlugin, PanelProps } from "@grafana/data";
import { TableNG } from "@grafana/ui/unstable";

import { customSettings, isEmpty, Nothing } from "./parts";

function Panel({ data, width, height, options, fieldConfig, timeRange }: PanelProps) {
  if (isEmpty(data.series)) {
    return <Nothing {...{ width, height, fieldConfig }} />;
  }
  cacheFieldDisplayNames(data.series);
  return (
    <TableNG
      data={data.series[0]}
      width={width}
      height={height}
      noHeader={options.showHeader === false}
      sortBy={options.sortBy}
      cellHeight={options.cellHeight}
      fieldConfig={fieldConfig}
      timeRange={timeRange}
      noValue={fieldConfig.defaults.noValue}
      structureRev={data.structureRev}
    />
  );
}

export const table = new PanelPlugin(Panel).useFieldConfig({
  useCustomConfig: customSettings({
    width: undefined,
    minWidth: 50,
    align: "auto",
    cellOptions: { type: "auto" },
    inspect: false,
    filterable: false,
    hideFrom: { viz: false },
  }),
});
