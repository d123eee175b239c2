// Bundles the page into src/dray/web/assets. The same sources and the same lock file give the same bytes.
import { build } from "esbuild";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "src", "dray", "web", "assets");

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  outdir: out,
});
for (const name of ["index.html", "icon.svg"]) cpSync(join(here, "src", name), join(out, name));
const licence = readFileSync(join(here, "node_modules", "preact", "LICENSE"), "utf8");
writeFileSync(join(out, "licences.txt"), `app.js contains Preact:\n\n${licence}`);
