// Where everything on the map is. Nodes that have the same shape share one arrangement, so thousands of them cost little.

import { NAME, ROOT, STATE, WITHIN, ZONE, type Cell, type NodeInfo, type Picture, type Pool } from "./cluster";
import type { Filter } from "./filter";

export interface Place { x: number; y: number; size: number }
/** Devices that stand together: of a zone, or partitions of one device with the bars of their counters. */
export interface Block { x: number; y: number; w: number; h: number; label: number; framed: boolean; bars: number; places: Place[] }
interface Shape { w: number; h: number; blocks: Block[] }
/** What a block shows of one node; in the order of the shape's places. */
export interface Content { cells: Cell[]; pool: Pool; title: string; bars: Pool["bars"] }
export interface Tile {
  x: number; y: number; w: number; h: number;
  name: string; kind: "node" | "pool"; info: NodeInfo | null;
  shape: Shape; contents: Content[]; counts: Record<string, number>; dim: boolean[][] | null;
}
export interface Group { title: string; x: number; y: number; w: number; noun: string; nodes: number; counts: Record<string, number> }
export interface Layout { tiles: Tile[]; groups: Group[]; height: number; shown: number; of: number; pools: number; names: boolean; counts: Record<string, number>; tallest: number }

export const HEADER = 26;
/** Where pools stand that several nodes reach. */
const SHARED = "shared pools";
const MARGIN = 10;

interface Candidate { name: string; kind: "node" | "pool"; info: NodeInfo | null; pools: Pool[] }
/** A node that is to be shown: what it has, and which of it the filter leaves out. */
interface Chosen extends Candidate { contents: Content[]; counts: Record<string, number>; dim: boolean[][] | null; shape: string }
export interface Choice { chosen: Chosen[]; of: number; pools: number; counts: Record<string, number> }

/** What the filter leaves of the picture; independent of how large it is drawn. */
export function choose(picture: Picture, filter: Filter): Choice {
  const all = candidates(picture);
  const choice: Choice = { chosen: [], of: all.length, pools: all.filter(({ kind }) => kind === "pool").length, counts: {} };
  for (const candidate of all) {
    const found = chosen(candidate, picture, filter);
    if (!found) continue;
    choice.chosen.push(found);
    add(choice.counts, found.counts);
  }
  return choice;
}

export function arrange(choice: Choice, groupBy: string, cell: number, width: number): Layout {
  const names = cell >= 12;
  const shapes = new Map<string, Shape>();
  const groups = new Map<string, Tile[]>();
  for (const each of choice.chosen) {
    let shape = shapes.get(each.shape);
    if (!shape) shapes.set(each.shape, (shape = shapeOf(each.contents, cell, names, width)));
    const { name, kind, info, contents, counts, dim } = each;
    const tile = { x: 0, y: 0, w: shape.w, h: shape.h, name, kind, info, shape, contents, counts, dim };
    const title = groupTitle(each, groupBy);
    const found = groups.get(title);
    if (found) found.push(tile);
    else groups.set(title, [tile]);
  }
  const ordered = [...groups].sort(([a], [b]) => Number(a === SHARED) - Number(b === SHARED) || collate(a, b));
  const { counts, of, pools } = choice;
  const layout: Layout = { tiles: [], groups: [], height: MARGIN, shown: choice.chosen.length, of, pools, names, counts, tallest: 0 };
  flow(layout, ordered, width, cell, !!groupBy);
  return layout;
}

const collator = new Intl.Collator("en", { numeric: true });
export const collate = collator.compare;

function candidates(picture: Picture): Candidate[] {
  const nodes = new Map<string, Candidate>();
  for (const info of Object.values(picture.nodes)) nodes.set(info.name, { name: info.name, kind: "node", info, pools: [] });
  const shared: Candidate[] = [];
  for (const pool of Object.values(picture.pools)) {
    const found = nodes.get(pool.node);
    if (found) found.pools.push(pool);
    else shared.push({ name: pool.node && pool.node !== "*" ? pool.node : pool.pool, kind: pool.node && pool.node !== "*" ? "node" : "pool", info: null, pools: [pool] });
  }
  const rank = ranked([...nodes.keys()]);
  return [...shared, ...[...nodes.values()].sort((a, b) => rank.get(a.name)! - rank.get(b.name)!)];
}

let ranks = new Map<string, number>();
/** The place of each name in the order in which people read them. Names seldom change, and comparing them takes long. */
function ranked(names: string[]): Map<string, number> {
  if (names.length !== ranks.size || !names.every((name) => ranks.has(name))) ranks = new Map(names.sort(collate).map((name, place) => [name, place]));
  return ranks;
}

function groupTitle(candidate: Candidate, groupBy: string): string {
  if (candidate.kind === "pool") return SHARED;
  if (!groupBy) return "nodes";
  if (groupBy === "driver") return [...new Set(candidate.pools.map((pool) => pool.driver))].sort().join(", ") || "no devices";
  if (groupBy === "state") return candidate.info?.cordoned ? "cordoned" : candidate.info?.ready ? "ready" : "not ready";
  const value = candidate.info?.labels[groupBy];
  if (value === undefined) return `without ${groupBy}`;
  const short = groupBy.replace(/^.*\//, "");
  return value.startsWith(short) ? value : `${short} ${value}`;
}

function chosen(candidate: Candidate, picture: Picture, filter: Filter): Chosen | null {
  if (!filter.node({ name: candidate.name, labels: candidate.info?.labels ?? {}, info: candidate.info })) return null;
  const contents = contentsOf(candidate.pools);
  const counts: Record<string, number> = { devices: 0, used: 0 };
  let dim: boolean[][] | null = null;
  if (filter.narrows) {
    dim = contents.map((content) => content.cells.map((each) => !filter.device({ cell: each, pool: content.pool })));
    contents.forEach((content, block) => tally(counts, content.cells.filter((_, place) => !dim![block]![place]), picture));
  } else for (const pool of candidate.pools) add(counts, tallied(pool, picture));
  if ((filter.narrows && !counts.devices) || !filter.counts(counts)) return null;
  const shape = contents.map((content) => `${content.cells.length}${content.cells[0]?.[WITHIN] ? `b${bars(content).length}` : "z"}${content.title ? "t" : ""}`).join(" ");
  return { ...candidate, contents, counts, dim, shape };
}

function tally(counts: Record<string, number>, cells: Cell[], picture: Picture): void {
  for (const cell of cells) {
    const state = picture.states[cell[STATE]]!;
    counts[state] = (counts[state] ?? 0) + 1;
    counts.devices = (counts.devices ?? 0) + 1;
    if (state === "allocated" || state === "partial") counts.used = (counts.used ?? 0) + 1;
  }
}

const totals = new WeakMap<Pool, Record<string, number>>();
function tallied(pool: Pool, picture: Picture): Record<string, number> {
  let found = totals.get(pool);
  if (!found) {
    totals.set(pool, (found = {}));
    tally(found, pool.devices, picture);
  }
  return found;
}

const arranged = new WeakMap<Pool, Content[]>();
function contentsOf(pools: Pool[]): Content[] {
  return pools.flatMap((pool) => {
    let known = arranged.get(pool);
    if (!known) {
      known = orderOf(pool.devices).map(({ key, title, places }) => ({
        cells: places.map((place) => pool.devices[place]!),
        pool,
        title,
        bars: pool.bars.length ? pool.bars.filter((bar) => key === `within ${bar[0]}`) : pool.bars,
      }));
      arranged.set(pool, known);
    }
    return known;
  });
}

/** Which devices of a pool stand together, by their places in it. */
interface Order { key: string; title: string; places: number[] }
const orders = new Map<string, Order[]>();

/** By zone, then by what partitions are cut from; in each by PCI root and name. Pools with the same devices share the answer. */
function orderOf(cells: Cell[]): Order[] {
  let like = "";
  for (const cell of cells) like += `${cell[NAME]}\n${cell[ZONE]}\n${cell[ROOT]}\n${cell[WITHIN]}\n`;
  const known = orders.get(like);
  if (known) return known;
  const blocks = new Map<string, number[]>();
  cells.forEach((cell, place) => {
    const key = cell[WITHIN] ? `within ${cell[WITHIN]}` : cell[ZONE] >= 0 ? `zone ${cell[ZONE]}` : "";
    const found = blocks.get(key);
    if (found) found.push(place);
    else blocks.set(key, [place]);
  });
  const made = [...blocks].sort(([a], [b]) => collate(a, b)).map(([key, places]) => ({
    key,
    title: key.replace(/^within /, ""),
    places: places.sort((a, b) => collate(cells[a]![ROOT], cells[b]![ROOT]) || collate(cells[a]![NAME], cells[b]![NAME])),
  }));
  if (orders.size >= 1000) orders.clear();
  orders.set(like, made);
  return made;
}

const bars = (content: Content) => content.bars.slice(0, 4);

function shapeOf(contents: Content[], cell: number, names: boolean, width: number): Shape {
  const gap = Math.max(1, Math.round(cell / 8)), apart = Math.max(2, Math.round(cell / 3));
  const pad = names ? 6 : Math.max(1, Math.round(cell / 4));
  const top = names ? 18 : pad;
  const most = Math.min(width - 2 * MARGIN, Math.max(cell * 26, 120));
  const blocks: Block[] = [];
  let x = pad, y = top, line = 0, right = 0;
  for (const content of contents) {
    const block = blockOf(content, cell, gap, names);
    if (x > pad && x + block.w + pad > most) { x = pad; y += line + apart; line = 0; }
    blocks.push({ ...block, x, y });
    x += block.w + apart;
    line = Math.max(line, block.h);
    right = Math.max(right, x - apart);
  }
  return { w: Math.max(right + pad, names ? 104 : cell), h: y + line + pad, blocks };
}

/** Blocks are named where there is room for it. */
export const LABEL = 11;
function blockOf(content: Content, cell: number, gap: number, names: boolean): Block {
  const parts = !!content.cells[0]?.[WITHIN];
  const size = parts ? Math.max(2, Math.round(cell * 0.62)) : cell;
  const framed = parts && cell >= 8;
  const inner = framed ? Math.max(2, gap) : 0;
  const count = content.cells.length;
  const columns = parts ? Math.min(count, 9) : count <= 3 ? count : Math.min(8, Math.max(2, Math.ceil(Math.sqrt(count))));
  const barSpace = framed ? bars(content).length * (names ? 5 : 3) + (bars(content).length ? 2 : 0) : 0;
  const places = content.cells.map((_, at) => ({
    x: inner + (at % columns) * (size + gap),
    y: inner + barSpace + Math.floor(at / columns) * (size + gap),
    size,
  }));
  const rows = Math.ceil(count / columns);
  const label = cell >= 18 && content.title ? LABEL : 0;
  for (const place of places) place.y += label;
  return {
    x: 0, y: 0, label, framed, places, bars: bars(content).length,
    w: columns * (size + gap) - gap + 2 * inner,
    h: label + barSpace + rows * (size + gap) - gap + 2 * inner,
  };
}

/** Groups that were asked for stand beside each other, each about as wide as it is high, so that no space is lost. */
function flow(layout: Layout, groups: [string, Tile[]][], width: number, cell: number, beside: boolean): void {
  const gap = Math.max(2, Math.round(cell / 3)), titled = groups.length > 1, apart = 14;
  let x = MARGIN, top = layout.height, line = 0;
  for (const [title, tiles] of groups) {
    const most = width - 2 * MARGIN;
    const wide = beside && titled ? Math.min(most, Math.max(across(tiles, gap), 210)) : most;
    if (x > MARGIN && x + wide > width - MARGIN) { x = MARGIN; top += line + apart; line = 0; }
    const counts: Record<string, number> = {};
    for (const tile of tiles) add(counts, tile.counts);
    if (titled) layout.groups.push({ title, x, y: top, w: wide, noun: tiles[0]!.kind, nodes: tiles.length, counts });
    line = Math.max(line, rows(tiles, x, top + (titled ? HEADER : 0), wide, gap) - top);
    x += wide + apart;
    for (const tile of tiles) {
      layout.tallest = Math.max(layout.tallest, tile.h);
      layout.tiles.push(tile);
    }
  }
  layout.tiles.sort((a, b) => a.y - b.y || a.x - b.x);
  layout.height = top + line + MARGIN;
}

/** A width for these tiles with which they make a pleasant rectangle. */
function across(tiles: Tile[], gap: number): number {
  const area = tiles.reduce((sum, tile) => sum + (tile.w + gap) * (tile.h + gap), 0);
  const widest = tiles.reduce((most, tile) => Math.max(most, tile.w), 0);
  const wanted = Math.max(widest, Math.sqrt(area * 2.4));
  return Math.ceil(wanted / (widest + gap)) * (widest + gap) - gap;
}

/** Puts tiles into rows, and says where the last one ends. */
function rows(tiles: Tile[], left: number, top: number, wide: number, gap: number): number {
  let x = left, y = top, line = 0;
  for (const tile of tiles) {
    if (x > left && x + tile.w > left + wide) { x = left; y += line + gap; line = 0; }
    tile.x = x; tile.y = y;
    x += tile.w + gap;
    line = Math.max(line, tile.h);
  }
  return y + line;
}

function add(into: Record<string, number>, more: Record<string, number>): void {
  for (const [key, value] of Object.entries(more)) into[key] = (into[key] ?? 0) + value;
}

/** The largest cells with which everything is seen at once, within what is pleasant. */
export function fitting(choice: Choice, groupBy: string, width: number, height: number): number {
  let low = 3, high = 28;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (arrange(choice, groupBy, middle, width).height <= height) low = middle;
    else high = middle - 1;
  }
  return low;
}

export interface Hit { tile: Tile; block: number; place: number }

/** Tiles whose rows reach into the span; tiles are in order from top to bottom. */
export function visible({ tiles, tallest }: Layout, from: number, to: number): Tile[] {
  let low = 0, high = tiles.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tiles[middle]!.y + tallest < from) low = middle + 1;
    else high = middle;
  }
  const found: Tile[] = [];
  for (let at = low; at < tiles.length && tiles[at]!.y <= to; at++) if (tiles[at]!.y + tiles[at]!.h >= from) found.push(tiles[at]!);
  return found;
}

export function hit(layout: Layout, x: number, y: number): Hit | null {
  for (const tile of visible(layout, y, y)) {
    if (x < tile.x || x > tile.x + tile.w) continue;
    for (const [number, block] of tile.shape.blocks.entries())
      for (const [place, at] of block.places.entries()) {
        const left = tile.x + block.x + at.x, top = tile.y + block.y + at.y;
        if (x >= left && x <= left + at.size && y >= top && y <= top + at.size) return { tile, block: number, place };
      }
    return { tile, block: -1, place: -1 };
  }
  return null;
}
