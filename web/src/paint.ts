// The map on a canvas. Each state has a colour that colour-blind people can tell apart and, where there is room, a shape of its own.

import { ATTACHING, MARK, RESTING, STATE, USED, type Cell } from "./cluster";
import { count } from "./words";
import { HEADER, visible, type Layout, type Place, type Tile } from "./layout";

export interface Palette {
  ground: string; tile: string; line: string; text: string; faint: string; accent: string;
  /** By name of state. */
  states: Record<string, string>;
}

/** Okabe and Ito's colours; on a dark ground lighter ones of the same hue. */
export const LIGHT: Palette = {
  ground: "#f6f7f9", tile: "#ffffff", line: "#cfd5dd", text: "#1b2430", faint: "#5a6675", accent: "#0b5cad",
  states: { free: "#4fb896", partial: "#56b4e9", allocated: "#1f5f99", tainted: "#e69f00", incompatible: "#c9719f", incomplete: "#d55e00" },
};
export const DARK: Palette = {
  ground: "#10151c", tile: "#19212b", line: "#364252", text: "#e8edf3", faint: "#9aa7b6", accent: "#7cc0ff",
  states: { free: "#2f9e79", partial: "#6cc3f2", allocated: "#8aa4c8", tainted: "#f0b429", incompatible: "#d98bb5", incomplete: "#f0793a" },
};

export interface Painting {
  layout: Layout; states: string[]; palette: Palette;
  from: number; width: number; height: number;
  focus: Tile | null; selected: string; hover: { tile: Tile; block: number; place: number } | null;
}

export function paint(context: CanvasRenderingContext2D, what: Painting): void {
  const { layout, palette, from, width, height } = what;
  context.fillStyle = palette.ground;
  context.fillRect(0, 0, width, height);
  context.save();
  context.translate(0, -from);
  const seen = visible(layout, from, from + height);
  for (const tile of seen) ground(context, tile, what);
  cells(context, seen, what);
  if (layout.names) for (const tile of seen) title(context, tile, palette);
  for (const tile of seen) outline(context, tile, what);
  groups(context, what);
  context.restore();
}

function ground(context: CanvasRenderingContext2D, tile: Tile, { palette, layout }: Painting): void {
  context.fillStyle = palette.tile;
  context.fillRect(tile.x, tile.y, tile.w, tile.h);
  context.lineWidth = 1;
  context.strokeStyle = palette.line;
  if (layout.names) context.strokeRect(tile.x + 0.5, tile.y + 0.5, tile.w - 1, tile.h - 1);
  tile.shape.blocks.forEach((block, number) => {
    const x = tile.x + block.x, y = tile.y + block.y + block.label;
    if (block.label) {
      context.font = "9px ui-sans-serif, system-ui, sans-serif";
      context.textBaseline = "middle";
      context.fillStyle = palette.faint;
      const title = tile.contents[number]!.title;
      context.fillText(context.measureText(title).width <= block.w ? title : clipped(context, title.replace(/^zone /, "z"), block.w), x, y - 6);
    }
    if (!block.framed) return;
    context.strokeRect(x - 0.5, y - 0.5, block.w + 1, block.h - block.label + 1);
    const thick = layout.names ? 5 : 3;
    tile.contents[number]!.bars.slice(0, block.bars).forEach((bar, at) => {
      context.fillStyle = palette.line;
      context.fillRect(x + 1, y + 1 + at * thick, block.w - 2, thick - 1);
      context.fillStyle = palette.states.allocated!;
      context.fillRect(x + 1, y + 1 + at * thick, ((block.w - 2) * bar[4]) / 100, thick - 1);
    });
  });
}

/** By state, so that colours are set six times and not forty thousand times. */
function cells(context: CanvasRenderingContext2D, tiles: Tile[], { states, palette }: Painting): void {
  const by = states.map(() => [] as [number, number, number, Cell, boolean][]);
  for (const tile of tiles)
    tile.shape.blocks.forEach((block, number) => {
      const content = tile.contents[number]!.cells, dim = tile.dim?.[number];
      block.places.forEach((place, at) => {
        const cell = content[at]!;
        by[cell[STATE]]!.push([tile.x + block.x + place.x, tile.y + block.y + place.y, place.size, cell, !!dim?.[at]]);
      });
    });
  by.forEach((found, number) => {
    const colour = palette.states[states[number]!] ?? palette.faint;
    context.fillStyle = colour;
    for (const each of found) {
      context.globalAlpha = each[4] ? 0.18 : 1;
      shape(context, states[number]!, colour, palette, each);
    }
  });
  context.globalAlpha = 1;
}

function shape(
  context: CanvasRenderingContext2D, state: string, colour: string, palette: Palette,
  [x, y, size, cell]: [number, number, number, Cell, boolean],
): void {
  const room = size >= 7;
  if (!room) {
    context.fillRect(x, y, size, size);
    return;
  }
  draw(context, state, colour, palette, { x, y, size }, cell[USED]);
  if (cell[MARK] & ATTACHING) ring(context, x, y, size, palette.tile);
  if (cell[MARK] & RESTING) resting(context, x, y, size, palette.text);
}

/** free: hollow with a light filling; partial: filled from below; allocated: full; tainted: crossed; incompatible: hatched;
 * incomplete: an outline with gaps. Also draws the legend. */
export function draw(context: CanvasRenderingContext2D, state: string, colour: string, palette: Palette, { x, y, size }: Place, used: number): void {
  context.lineWidth = Math.max(1, size / 12);
  context.strokeStyle = colour;
  const half = context.lineWidth / 2, alpha = context.globalAlpha;
  const frame = () => context.strokeRect(x + half, y + half, size - 2 * half, size - 2 * half);
  context.fillStyle = colour;
  if (state === "allocated") context.fillRect(x, y, size, size);
  else if (state === "free") {
    context.globalAlpha = alpha * 0.55;
    context.fillRect(x, y, size, size);
    context.globalAlpha = alpha;
    frame();
  } else if (state === "partial") {
    const high = Math.max(2, (size * used) / 100);
    context.globalAlpha = alpha * 0.25;
    context.fillRect(x, y, size, size);
    context.globalAlpha = alpha;
    context.fillRect(x, y + size - high, size, high);
    frame();
  } else if (state === "tainted") {
    context.fillRect(x, y, size, size);
    strokes(context, palette.tile, size, [[x, y, x + size, y + size], [x + size, y, x, y + size]]);
  } else if (state === "incompatible") {
    context.globalAlpha = alpha * 0.35;
    context.fillRect(x, y, size, size);
    context.globalAlpha = alpha;
    strokes(context, colour, size, [[x, y + size / 2, x + size / 2, y], [x, y + size, x + size, y], [x + size / 2, y + size, x + size, y + size / 2]]);
  } else {
    context.setLineDash([size / 4, size / 6]);
    frame();
    context.setLineDash([]);
  }
}

function strokes(context: CanvasRenderingContext2D, colour: string, size: number, lines: number[][]): void {
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1, size / 8);
  context.beginPath();
  for (const [a, b, c, d] of lines) {
    context.moveTo(a!, b!);
    context.lineTo(c!, d!);
  }
  context.stroke();
}

/** Being attached: a ring in the middle. */
export function ring(context: CanvasRenderingContext2D, x: number, y: number, size: number, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1, size / 8);
  context.beginPath();
  context.arc(x + size / 2, y + size / 2, size / 4, 0, 2 * Math.PI);
  context.stroke();
}

/** Resting after a failure: a bar across. */
export function resting(context: CanvasRenderingContext2D, x: number, y: number, size: number, colour: string): void {
  const before = context.fillStyle;
  context.fillStyle = colour;
  context.fillRect(x, y + size * 0.42, size, Math.max(1, size * 0.16));
  context.fillStyle = before;
}

function title(context: CanvasRenderingContext2D, tile: Tile, palette: Palette): void {
  context.font = "11px ui-sans-serif, system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = tile.info && !tile.info.ready ? palette.states.incomplete! : palette.text;
  const mark = tile.info?.cordoned ? "⊘ " : tile.info && !tile.info.ready ? "! " : "";
  context.fillText(clipped(context, mark + tile.name, tile.w - 12), tile.x + 6, tile.y + 9);
}

const widths = new Map<string, string>();
function clipped(context: CanvasRenderingContext2D, text: string, width: number): string {
  const key = `${width} ${text}`;
  let found = widths.get(key);
  if (found === undefined) {
    found = text;
    // The end of a node's name tells it from others, so the middle goes.
    for (let keep = text.length - 1; keep > 4 && context.measureText(found).width > width; keep--)
      found = `${text.slice(0, Math.ceil(keep / 3))}…${text.slice(text.length - Math.floor((keep * 2) / 3))}`;
    if (widths.size > 20_000) widths.clear();
    widths.set(key, found);
  }
  return found;
}

function outline(context: CanvasRenderingContext2D, tile: Tile, { focus, selected, hover, palette }: Painting): void {
  const chosen = selected === `${tile.kind}:${tile.name}`;
  if (focus === tile || chosen) {
    context.strokeStyle = palette.accent;
    context.lineWidth = focus === tile ? 3 : 2;
    context.strokeRect(tile.x - 1, tile.y - 1, tile.w + 2, tile.h + 2);
  }
  if (hover?.tile !== tile && !selected.startsWith("device:")) return;
  tile.shape.blocks.forEach((block, number) => block.places.forEach((place, at) => {
    const here = hover?.tile === tile && hover.block === number && hover.place === at;
    const content = tile.contents[number]!;
    if (!here && (!selected.startsWith("device:") || selected !== `device:${content.pool.driver}/${content.pool.pool}/${content.cells[at]![0]}`)) return;
    context.strokeStyle = here ? palette.text : palette.accent;
    context.lineWidth = 2;
    context.strokeRect(tile.x + block.x + place.x - 1, tile.y + block.y + place.y - 1, place.size + 2, place.size + 2);
  }));
}

function groups(context: CanvasRenderingContext2D, { layout, palette, from, height }: Painting): void {
  context.textBaseline = "middle";
  for (const group of layout.groups) {
    if (group.y + HEADER < from || group.y > from + height) continue;
    context.font = "600 13px ui-sans-serif, system-ui, sans-serif";
    context.fillStyle = palette.text;
    const title = clipped(context, group.title, group.w - 90);
    context.fillText(title, group.x, group.y + HEADER / 2 + 2);
    const wide = context.measureText(title).width;
    context.font = "12px ui-sans-serif, system-ui, sans-serif";
    context.fillStyle = palette.faint;
    const { free = 0, devices = 0 } = group.counts;
    const short = `${free} of ${devices} free`, long = `${count(group.nodes, group.noun)}, ${free} of ${devices} devices free`;
    const room = group.w - wide - 12;
    context.fillText(context.measureText(long).width <= room ? long : context.measureText(short).width <= room ? short : `${free}/${devices}`, group.x + wide + 10, group.y + HEADER / 2 + 2);
  }
}
