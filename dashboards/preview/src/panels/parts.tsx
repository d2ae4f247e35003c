// What several panels need.
import { DataFrame, FieldConfigEditorBuilder, identityOverrideProcessor, PanelProps } from "@grafana/data";
import { useStyles2 } from "@grafana/ui";
import { css } from "@emotion/css";

// Settings that only this kind of panel has: those not named here are lost, as in Grafana.
export function customSettings(defaults: Record<string, unknown>) {
  return (builder: FieldConfigEditorBuilder<any>) => {
    for (const [id, defaultValue] of Object.entries(defaults)) {
      builder.addCustomEditor({
        id,
        path: id,
        name: id,
        defaultValue,
        editor: () => null,
        override: () => null,
        process: identityOverrideProcessor,
        shouldApply: () => true,
        settings: {},
      });
    }
  };
}

export function isEmpty(series: DataFrame[]): boolean {
  return series.every((frame) => frame.length === 0);
}

// What a panel without data says: the text that it has for that, else Grafana's.
export function Nothing({ width, height, fieldConfig }: Pick<PanelProps, "width" | "height" | "fieldConfig">) {
  const look = useStyles2((theme) =>
    css({
      display: "flex",
      alignItems: "center",
      justifyContent: "center",
      textAlign: "center",
      color: theme.colors.text.secondary,
      fontSize: theme.typography.size.md,
    }),
  );
  return (
    <div className={look} style={{ width, height }}>
      {fieldConfig.defaults.noValue ?? "No data"}
    </div>
  );
}
