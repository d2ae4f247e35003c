// One number, large.
import {
  DisplayValueAlignmentFactors,
  FieldColorModeId,
  FieldDisplay,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  PanelPlugin,
  PanelProps,
} from "@grafana/data";
import { BigValue, VizRepeater, useTheme2 } from "@grafana/ui";

function Panel({ data, width, height, options, fieldConfig, replaceVariables, timeZone, renderCounter }: PanelProps) {
  const theme = useTheme2();
  const values = () =>
    getFieldDisplayValues({
      fieldConfig,
      reduceOptions: options.reduceOptions,
      replaceVariables,
      theme,
      data: data.series,
      sparkline: options.graphMode !== "none",
      timeZone,
    });
  return (
    <VizRepeater<FieldDisplay>
      getValues={values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, width, height, count, alignmentFactors }) => (
        <BigValue
          value={{ ...value.display, title: count > 1 ? value.display.title : undefined }}
          count={count}
          alignmentFactors={alignmentFactors as DisplayValueAlignmentFactors}
          sparkline={value.sparkline}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
          text={options.text}
          width={width}
          height={height}
          theme={theme}
        />
      )}
      source={data}
      itemSpacing={3}
      width={width}
      height={height}
      renderCounter={renderCounter}
      autoGrid
      orientation={options.orientation}
    />
  );
}

export const stat = new PanelPlugin(Panel)
  .setNoPadding()
  .useFieldConfig({ standardOptions: { color: { defaultValue: { mode: FieldColorModeId.Thresholds } } } as any });
