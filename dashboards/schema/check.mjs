// Type-checks the dashboards against @grafana/schema: `npm install && npm run check`.
//
// JSON knows no enums, so each enum is taken for its values; unknown properties are errors.
// Options and custom field settings of a panel are those of its kind.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const boards = process.argv[2] ?? join(here, "..", "..", "src", "tidegauge", "dashboards");
const build = join(here, "build");
const kinds = {
  stat: ["stat/panelcfg/x/StatPanelCfg", false],
  timeseries: ["timeseries/panelcfg/x/TimeSeriesPanelCfg", true],
  bargauge: ["bargauge/panelcfg/x/BarGaugePanelCfg", false],
  table: ["table/panelcfg/x/TablePanelCfg", true],
  heatmap: ["heatmap/panelcfg/x/HeatmapPanelCfg", true],
  "state-timeline": ["statetimeline/panelcfg/x/StateTimelinePanelCfg", true],
};

const lines = [
  'import type { Dashboard } from "@grafana/schema";',
  "type Plain<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T",
  "  : T extends (infer E)[] ? Plain<E>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;",
];
for (const [kind, [path]] of Object.entries(kinds)) {
  const name = kind.replace("-", "_");
  lines.push(`import type * as ${name} from "@grafana/schema/dist/esm/raw/composable/${path}_types.gen";`);
}
let number = 0;
for (const file of readdirSync(boards).filter((name) => name.endsWith(".json") && name.startsWith("tidegauge-"))) {
  const board = JSON.parse(readFileSync(join(boards, file), "utf8"));
  lines.push(`// ${file}`, `export const board${++number}: Plain<Dashboard> = ${JSON.stringify(board, null, 1)};`);
  for (const panel of board.panels.filter((panel) => panel.type !== "row")) {
    if (!(panel.type in kinds)) throw new Error(`${file}: no types for ${panel.type}`);
    const name = panel.type.replace("-", "_");
    const what = `${name}_${++number}`;
    lines.push(`// ${file}: ${panel.title}`);
    lines.push(`export const options_${what}: Plain<Partial<${name}.Options>> = ${JSON.stringify(panel.options ?? {})};`);
    if (kinds[panel.type][1]) {
      const custom = JSON.stringify(panel.fieldConfig?.defaults?.custom ?? {});
      lines.push(`export const custom_${what}: Plain<Partial<${name}.FieldConfig>> = ${custom};`);
    }
  }
}
mkdirSync(build, { recursive: true });
writeFileSync(join(build, "boards.ts"), lines.join("\n") + "\n");
const tsc = join(here, "node_modules", "typescript", "bin", "tsc");
const options = ["--strict", "--noEmit", "--skipLibCheck", "--module", "esnext", "--target", "es2022"];
try {
  execFileSync(process.execPath, [tsc, ...options, "--moduleResolution", "bundler", join(build, "boards.ts")], { stdio: "inherit" });
} catch {
  process.exit(1);
}
console.log(`${number} dashboards and panels are as @grafana/schema has them`);
