// The map of nodes and devices: filter, group, zoom, point, choose.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { go, onMap, read, withOptions } from "./address";
import { ATTACHING, MARK, NAME, PODS, RESTING, ROOT, STATE, USED, WITHIN, ZONE, type Picture } from "./cluster";
import { Panel } from "./details";
import { compile, type Filter } from "./filter";
import { arrange, choose, collate, fitting, hit, type Hit, type Layout, type Tile } from "./layout";
import { paint, resting, ring } from "./paint";
import { labelled, Sign, useCluster, usePalette } from "./parts";
import { count } from "./words";

export function MapView() {
  const { picture } = useCluster();
  if (!picture) return <p class="faint pad" role="status">reading the cluster …</p>;
  return <Mapped picture={picture} />;
}

function Mapped({ picture }: { picture: Picture }) {
  const { options } = read();
  const text = options.get("filter") ?? "", groupBy = options.get("group") ?? "", selected = options.get("on") ?? "";
  const table = options.get("as") === "table";
  const filter = useMemo(() => compile(text, picture), [text, picture]);
  const stage = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const look = () => setSize({ width: stage.current?.clientWidth ?? 0, height: stage.current?.clientHeight ?? 0 });
    const observer = new ResizeObserver(look);
    if (stage.current) observer.observe(stage.current);
    look();
    return () => observer.disconnect();
  }, [table]);
  const choice = useMemo(() => choose(picture, filter), [picture, filter]);
  const zoom = Number(options.get("zoom")) || 0;
  const fit = useMemo(
    () => (size.width ? fitting(choice, groupBy, size.width, size.height) : 10),
    [size.width, size.height, text, groupBy, choice.of],
  );
  // On a telephone everything at once would be dust: it scrolls instead.
  const cell = zoom || Math.min(26, Math.max(size.width < 480 ? 10 : 5, fit));
  const layout = useMemo(
    () => arrange(choice, groupBy, cell, size.width || 1000),
    [choice, groupBy, cell, size.width],
  );
  return (
    <div class="map">
      <Tools picture={picture} filter={filter} text={text} groupBy={groupBy} cell={cell} fit={fit} table={table} layout={layout} />
      <div class="split">
        {table ? <Table layout={layout} picture={picture} /> : <Stage {...{ stage, layout, picture, selected, cell, size }} />}
        {selected && <Panel on={selected} />}
      </div>
    </div>
  );
}

// ---------------------------------------------------------------------------------------------------------------- tools

interface ToolsOf { picture: Picture; filter: Filter; text: string; groupBy: string; cell: number; fit: number; table: boolean; layout: Layout }

function Tools({ picture, filter, text, groupBy, cell, fit, table, layout }: ToolsOf) {
  const [typed, setTyped] = useState(text);
  useLayoutEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => go(withOptions({ filter: typed }), true), 150);
    return () => clearTimeout(timer);
  }, [typed]);
  const labels = useMemo(() => grouping(picture), [Object.keys(picture.nodes).length]);
  return (
    <div class="tools" role="search" aria-label="what the map shows">
      <label class="filter">
        <span>filter</span>
        <input
          type="search" value={typed} placeholder="class=gpu free>=4" spellcheck={false} autocomplete="off" id="filter"
          aria-invalid={!!filter.error} aria-describedby="found" onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </label>
      <label>
        <span>group by</span>
        <select value={groupBy} onChange={(event) => go(withOptions({ group: event.currentTarget.value }))}>
          <option value="">nothing</option>
          <option value="driver">driver</option>
          <option value="state">state of the node</option>
          {labels.map((label) => <option value={label}>{label}</option>)}
        </select>
      </label>
      <label class="zoom">
        <span>zoom</span>
        <input type="range" min={3} max={30} value={cell} disabled={table} onInput={(event) => go(withOptions({ zoom: event.currentTarget.value }), true)} />
      </label>
      <button type="button" disabled={table} onClick={() => go(withOptions({ zoom: cell === fit ? null : fit }), true)}>see all</button>
      <button type="button" aria-pressed={table} onClick={() => go(withOptions({ as: table ? null : "table" }))}>as a table</button>
      <p id="found" class={filter.error ? "trouble" : "faint"} role="status">
        {filter.error || `${filter.empty ? "" : `${layout.shown} of `}${count(layout.of - layout.pools, "node")}`}
        {!filter.error && layout.pools > 0 && `${filter.empty ? ", " : " and "}${count(layout.pools, "pool")}`}
        {!filter.error && `, ${count(layout.counts.devices ?? 0, "device")}`}
      </p>
      <Legend picture={picture} counts={layout.counts} />
    </div>
  );
}

/** Labels by which nodes can sensibly be put together: more than one value, and fewer values than nodes. */
function grouping(picture: Picture): string[] {
  const values = new Map<string, Set<string>>();
  const nodes = Object.values(picture.nodes);
  for (const node of nodes)
    for (const [key, value] of Object.entries(node.labels)) {
      const found = values.get(key);
      if (found) found.add(value);
      else values.set(key, new Set([value]));
    }
  return [...values].filter(([, found]) => found.size > 1 && found.size <= Math.max(2, nodes.length / 2)).map(([key]) => key).sort(collate);
}

function Legend({ picture, counts }: { picture: Picture; counts: Record<string, number> }) {
  const marks = useMemo(() => {
    let seen = 0;
    for (const pool of Object.values(picture.pools)) for (const device of pool.devices) seen |= device[MARK];
    return seen;
  }, [picture]);
  return (
    <ul class="legend" aria-label="legend">
      {picture.states.map((state) => (
        <li class={counts[state] ? "" : "none"}><Sign state={state} /> {state} <b>{counts[state] ?? 0}</b></li>
      ))}
      {!!(marks & ATTACHING) && <li><Mark kind="attaching" /> being attached</li>}
      {!!(marks & RESTING) && <li><Mark kind="resting" /> resting after a failure</li>}
    </ul>
  );
}

function Mark({ kind }: { kind: "attaching" | "resting" }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = usePalette();
  useLayoutEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    context.fillStyle = palette.states.allocated!;
    context.fillRect(0, 0, 28, 28);
    if (kind === "attaching") ring(context, 0, 0, 28, palette.tile);
    else resting(context, 0, 0, 28, palette.text);
  }, [palette]);
  return <canvas ref={canvas} width={28} height={28} class="sign" aria-hidden="true" />;
}

// ---------------------------------------------------------------------------------------------------------------- stage

interface StageOf {
  stage: { current: HTMLDivElement | null };
  layout: Layout; picture: Picture; selected: string; cell: number; size: { width: number; height: number };
}

function Stage({ stage, layout, picture, selected, cell, size }: StageOf) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = usePalette();
  const [hover, setHover] = useState<(Hit & { x: number; y: number }) | null>(null);
  const [focus, setFocus] = useState("");
  const focused = layout.tiles.find((tile) => `${tile.kind}:${tile.name}` === focus) ?? null;
  const frame = useRef(0);
  const state = useRef({ layout, hover, focused, selected, palette });
  state.current = { layout, hover, focused, selected, palette };

  const draw = () => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => onto(canvas.current, stage.current, picture, state.current, size.width, size.height));
  };
  useLayoutEffect(draw, [layout, hover, focused, selected, palette, size.width, size.height]);
  usePrinting(() => onto(canvas.current, stage.current, picture, state.current, size.width, Math.min(layout.height, 12_000), 0));

  const at = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    return hit(layout, event.clientX - box.left, event.clientY - box.top + stage.current!.scrollTop);
  };
  const move = (event: MouseEvent) => {
    const found = at(event);
    if (found?.tile === hover?.tile && found?.block === hover?.block && found?.place === hover?.place) return;
    setHover(found ? { ...found, x: event.clientX, y: event.clientY } : null);
  };
  const choose = (event: MouseEvent) => {
    const found = at(event);
    if (found) openOf(found.tile, found.block, found.place);
  };
  const keys = (event: KeyboardEvent) => {
    const next = moved(layout, focused, event.key);
    if (next) {
      event.preventDefault();
      setFocus(`${next.kind}:${next.name}`);
      stage.current!.scrollTo({ top: Math.max(0, Math.min(next.y - 20, Math.max(stage.current!.scrollTop, next.y + next.h + 20 - size.height))) });
    } else if ((event.key === "Enter" || event.key === " ") && focused) {
      event.preventDefault();
      openOf(focused, -1, -1);
    } else if (event.key === "+" || event.key === "-") {
      go(withOptions({ zoom: Math.min(30, Math.max(3, cell + (event.key === "+" ? 1 : -1))) }), true);
    }
  };
  return (
    <div class="stage" ref={stage} onScroll={draw}>
      <canvas
        ref={canvas} tabIndex={0} role="application" aria-roledescription="map" aria-label={`map of ${count(layout.shown, "node")}`}
        aria-describedby="keys" onMouseMove={move} onMouseLeave={() => setHover(null)} onClick={choose} onKeyDown={keys}
        onFocus={() => !focused && layout.tiles[0] && setFocus(`${layout.tiles[0].kind}:${layout.tiles[0].name}`)}
      />
      <div class="spacer" style={{ height: `${Math.max(0, layout.height - size.height)}px` }} />
      <p id="keys" class="unseen">Use the arrow keys to move between nodes, Enter to open one, plus and minus to zoom. The same data is available as a table.</p>
      <p class="unseen" aria-live="polite">{focused ? spoken(focused) : ""}</p>
      {!layout.tiles.length && <p class="empty">No nodes match.</p>}
      {hover && <Tip hover={hover} picture={picture} />}
    </div>
  );
}

function openOf(tile: Tile, block: number, place: number): void {
  const content = tile.contents[block], cell = content?.cells[place];
  if (cell) go(onMap("device", `${content!.pool.driver}/${content!.pool.pool}/${cell[NAME]}`));
  else if (tile.kind === "node") go(onMap("node", tile.name));
}

interface Look { layout: Layout; hover: Hit | null; focused: Tile | null; selected: string; palette: ReturnType<typeof usePalette> }

function onto(
  canvas: HTMLCanvasElement | null, stage: HTMLElement | null, picture: Picture, look: Look, width: number, height: number, from?: number,
): void {
  if (!canvas || !stage || !width) return;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d", { alpha: false })!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  const { layout, hover, focused, selected, palette } = look;
  const focus = document.activeElement === canvas ? focused : null;
  paint(context, { layout, states: picture.states, palette, from: from ?? stage.scrollTop, width, height, focus, selected, hover });
}

/** On paper everything is there, not only what is scrolled to. */
function usePrinting(whole: () => void): void {
  useLayoutEffect(() => {
    addEventListener("beforeprint", whole);
    return () => removeEventListener("beforeprint", whole);
  });
}

/** The tile that an arrow key leads to: the nearest one in that direction. */
function moved(layout: Layout, from: Tile | null, key: string): Tile | null {
  const step: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };
  const tiles = layout.tiles;
  if (key === "Home") return tiles[0] ?? null;
  if (key === "End") return tiles.at(-1) ?? null;
  if (!from) return key.startsWith("Arrow") ? (tiles[0] ?? null) : null;
  if (step[key]) return tiles[Math.max(0, Math.min(tiles.length - 1, tiles.indexOf(from) + step[key]!))]!;
  if (key !== "ArrowUp" && key !== "ArrowDown") return null;
  const down = key === "ArrowDown";
  const row = down ? tiles.find((tile) => tile.y > from.y) : tiles.findLast((tile) => tile.y < from.y);
  if (!row) return from;
  return tiles.filter((tile) => tile.y === row.y).reduce((best, tile) => (Math.abs(tile.x - from.x) < Math.abs(best.x - from.x) ? tile : best), row);
}

function spoken(tile: Tile): string {
  const { devices, used: _, ...states } = tile.counts;
  const told = Object.entries(states).map(([state, number]) => `${number} ${state}`).join(", ");
  const about = tile.info?.cordoned ? ", cordoned" : tile.info && !tile.info.ready ? ", not ready" : "";
  return `${tile.kind} ${tile.name}${about}: ${count(devices ?? 0, "device")}${told ? `: ${told}` : ""}`;
}

function Tip({ hover, picture }: { hover: Hit & { x: number; y: number }; picture: Picture }) {
  const { tile, block, place } = hover;
  const content = tile.contents[block], cell = content?.cells[place];
  const left = hover.x > innerWidth - 280;
  return (
    <div class="tip" style={{ left: left ? "auto" : `${hover.x + 14}px`, right: left ? `${innerWidth - hover.x + 14}px` : "auto", top: `${Math.min(hover.y + 14, innerHeight - 110)}px` }}>
      {cell ? (
        <>
          <b>{cell[NAME]}</b> <span class="faint">of {content!.pool.pool}</span>
          <div><Sign state={picture.states[cell[STATE]]!} used={cell[USED]} /> {picture.states[cell[STATE]]}{cell[STATE] && cell[USED] && cell[USED] < 100 ? `, ${cell[USED]} % used` : ""}
            {cell[MARK] & ATTACHING ? ", being attached" : ""}{cell[MARK] & RESTING ? ", resting after a failure" : ""}</div>
          <div class="faint">{[cell[ZONE] >= 0 ? `zone ${cell[ZONE]}` : "", cell[ROOT], cell[WITHIN] && `part of ${cell[WITHIN]}`].filter(Boolean).join(", ")}</div>
          {cell[PODS].slice(0, 3).map((pod) => <div>{pod}</div>)}
          {cell[PODS].length > 3 && <div>and {cell[PODS].length - 3} more</div>}
        </>
      ) : (
        <><b>{tile.name}</b><div>{spoken(tile).replace(/^[^:]*: /, "")}</div></>
      )}
    </div>
  );
}

// ---------------------------------------------------------------------------------------------------------------- table

const ROWS = 100;

function Table({ layout, picture }: { layout: Layout; picture: Picture }) {
  const pages = Math.max(1, Math.ceil(layout.tiles.length / ROWS));
  const page = Math.min(pages, Math.max(1, Number(read().options.get("page")) || 1));
  const rows = layout.tiles.slice((page - 1) * ROWS, page * ROWS);
  return (
    <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="nodes as a table">
      <table>
        <caption class="unseen">devices of each node by state</caption>
        <thead><tr><th scope="col">node</th><th scope="col" class="number">devices</th>{picture.states.map((state) => <th scope="col" class="number">{state}</th>)}</tr></thead>
        <tbody>
          {rows.map((tile) => (
            <tr>
              <th scope="row">{tile.kind === "node" ? <a href={onMap("node", tile.name)}>{tile.name}</a> : tile.name}</th>
              <td class="number">{tile.counts.devices}</td>
              {picture.states.map((state) => <td class="number">{tile.counts[state] ?? ""}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
      {pages > 1 && (
        <nav class="pages" aria-label="pages">
          {page > 1 && <a href={withOptions({ page: page - 1 })}>previous</a>}
          <span>{page} of {pages}</span>
          {page < pages && <a href={withOptions({ page: page + 1 })}>next</a>}
        </nav>
      )}
    </div>
  );
}
