// Bundles the page into build/: `npm install && npm run build`.
import { cpSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "build");

rmSync(out, { recursive: true, force: true });
await build({
  entryPoints: [join(here, "src", "page.tsx")],
  outfile: join(out, "page.js"),
  bundle: true,
  format: "iife",
  jsx: "automatic",
  loader: { ".svg": "dataurl", ".png": "dataurl", ".ttf": "empty" },
  define: { "process.env.NODE_ENV": '"production"', global: "window" },
  minify: true,
  logLevel: "warning",
});
cpSync(join(here, "src", "index.html"), join(out, "index.html"));
// Icons are asked for one by one, where a Grafana serves them.
cpSync(join(here, "node_modules/@grafana/ui/dist/public"), join(out, "public/build"), { recursive: true });
