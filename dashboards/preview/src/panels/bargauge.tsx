// A bar for each value.
import {
  DisplayValueAlignmentFactors,
  FieldColorModeId,
  FieldDisplay,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  PanelPlugin,
  PanelProps,
} from "@grafana/data";
import { BarGauge, useTheme2, VizRepeater } from "@grafana/ui";

function Panel({ data, width, height, options, fieldConfig, replaceVariables, timeZone, renderCounter }: PanelProps) {
  const theme = useTheme2();
  const values = () =>
    getFieldDisplayValues({
      fieldConfig,
      reduceOptions: options.reduceOptions,
      replaceVariables,
      theme,
      data: data.series,
      timeZone,
    });
  return (
    <VizRepeater<FieldDisplay>
      getValues={values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, width, height, orientation, alignmentFactors }) => (
        <BarGauge
          value={{ ...value.display, title: value.display.title }}
          field={value.field}
          display={value.view?.getFieldDisplayProcessor(value.colIndex ?? 0)}
          alignmentFactors={alignmentFactors as DisplayValueAlignmentFactors}
          orientation={orientation}
          displayMode={options.displayMode}
          valueDisplayMode={options.valueMode}
          namePlacement={options.namePlacement}
          showUnfilled={options.showUnfilled ?? true}
          text={options.text}
          itemSpacing={10}
          lcdCellWidth={12}
          width={width}
          height={height}
          theme={theme}
        />
      )}
      source={data}
      itemSpacing={10}
      minVizWidth={8}
      minVizHeight={options.sizing === "manual" ? options.minVizHeight : 16}
      maxVizHeight={options.sizing === "manual" ? options.maxVizHeight : 300}
      width={width}
      height={height}
      renderCounter={renderCounter}
      orientation={options.orientation}
    />
  );
}

export const bargauge = new PanelPlugin(Panel).useFieldConfig({
  standardOptions: { color: { defaultValue: { mode: FieldColorModeId.Thresholds } } } as any,
});
