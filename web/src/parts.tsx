// Small pieces that several views share.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, type Asked } from "./api";
import { cluster } from "./cluster";
import { DARK, LIGHT, draw, type Palette } from "./paint";

/** Draws again whenever the cluster's picture changes. Like all that listens it begins with the first drawing (a layout effect):
 * other effects wait for the next frame, and what is told before it, perhaps for the last time, would never be shown. */
export function useCluster(): typeof cluster {
  const [, set] = useState(0);
  useLayoutEffect(() => cluster.listen(() => set(cluster.version)), []);
  return cluster;
}

export interface Answer<T> { data: T | null; error: string; asking: boolean }

/** An answer that is asked for again when the cluster changes, and each so many seconds: the dearer it is, the more seldom.
 * ``rest``: how much longer than it takes to answer nothing is asked. */
export function useAnswer<T>(path: string, asked: Asked, off = false, every = 0, rest = 4): Answer<T> {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!every) return;
    const timer = setInterval(() => setTurn((before) => before + 1), every * 1000);
    return () => clearInterval(timer);
  }, [every]);
  const [answer, set] = useState<Answer<T>>({ data: null, error: "", asking: true });
  const { picture } = useCluster();
  const number = picture?.number ?? 0;
  const key = JSON.stringify([path, asked]);
  const last = useRef({ key: "", end: 0, took: 0 });
  useEffect(() => {
    if (off) return;
    const fresh = last.current.key !== key;
    if (fresh) set({ data: null, error: "", asking: true });
    const ended = new AbortController();
    const pause = fresh ? 0 : Math.max(0, last.current.end + Math.max(1000, rest * last.current.took) - performance.now());
    const timer = setTimeout(async () => {
      const begun = performance.now();
      try {
        const data = await get<T>(path, asked, ended.signal);
        set({ data, error: "", asking: false });
      } catch (error) {
        if (!ended.signal.aborted) set((before) => ({ ...before, error: (error as Error).message, asking: false }));
        return;
      }
      last.current = { key, end: performance.now(), took: performance.now() - begun };
    }, pause);
    return () => { clearTimeout(timer); ended.abort(); };
  }, [key, number, off, turn]);
  return answer;
}

export function Shown<T>({ answer, children }: { answer: Answer<T>; children: (data: T) => ComponentChildren }) {
  if (answer.data !== null) return <>{children(answer.data)}</>;
  return answer.error ? <p class="trouble" role="alert">{answer.error}</p> : <p class="faint" role="status">loading …</p>;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
export type Theme = "auto" | "light" | "dark";

export function chosenTheme(): Theme {
  return (localStorage.getItem("dray-theme") as Theme | null) ?? "auto";
}

export function setTheme(theme: Theme): void {
  localStorage.setItem("dray-theme", theme);
  document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("theme"));
}

export function usePalette(): Palette {
  const pick = () => (chosenTheme() === "dark" || (chosenTheme() === "auto" && dark.matches) ? DARK : LIGHT);
  const [palette, set] = useState(pick);
  useLayoutEffect(() => {
    const change = () => set(pick());
    dark.addEventListener("change", change);
    addEventListener("theme", change);
    return () => { dark.removeEventListener("change", change); removeEventListener("theme", change); };
  }, []);
  return palette;
}

/** The sign of a state, as it is on the map. */
export function Sign({ state, used = 50, size = 14 }: { state: string; used?: number; size?: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = usePalette();
  useLayoutEffect(() => {
    const scale = devicePixelRatio || 1, context = canvas.current!.getContext("2d")!;
    canvas.current!.width = canvas.current!.height = size * scale;
    context.scale(scale, scale);
    draw(context, state, palette.states[state] ?? palette.faint, palette, { x: 0, y: 0, size }, used);
  }, [state, used, size, palette]);
  return <canvas ref={canvas} class="sign" style={{ width: `${size}px`, height: `${size}px` }} aria-hidden="true" />;
}

export function State({ state, used }: { state: string; used?: number }) {
  return <span class="state"><Sign state={state} used={used} />{state}</span>;
}

const MARKS: Record<string, string> = { impossible: "✕", unschedulable: "▲", waiting: "◔", bound: "✓" };

export function Verdict({ verdict }: { verdict: string }) {
  return <strong class={`verdict ${verdict}`}><span aria-hidden="true">{MARKS[verdict] ?? "?"}</span> {verdict}</strong>;
}

/** For the place of a table: where there is no room its cells stand below each other, each with the heading that it has lost, and
 * the roles say what the layout does not any more. */
export function labelled(place: HTMLElement | null): void {
  if (!place) return;
  const label = () => {
    for (const table of place.querySelectorAll("table")) {
      const titles = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent ?? "");
      table.setAttribute("role", "table");
      for (const section of table.querySelectorAll("thead, tbody")) section.setAttribute("role", "rowgroup");
      for (const row of table.rows) {
        row.setAttribute("role", "row");
        [...row.cells].forEach((cell, place) => {
          cell.setAttribute("role", cell.tagName === "TD" ? "cell" : cell.scope === "row" ? "rowheader" : "columnheader");
          if (cell.dataset.label !== titles[place]) cell.dataset.label = titles[place] ?? "";
        });
      }
    }
  };
  label();
  new MutationObserver(label).observe(place, { childList: true, subtree: true });
}

/** Something to paste, with a button that copies it. */
export function Command({ text }: { text: string }) {
  const [copied, set] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return (
    <div class="command">
      <pre tabIndex={0}>{text}</pre>
      <button type="button" onClick={copy}>{copied ? "copied" : "copy"}</button>
    </div>
  );
}

export function Bar({ used, percent, label }: { used: string; percent: number; label: string }) {
  return (
    <div class="bar" role="img" aria-label={`${label}: ${used}`}>
      <span class="name">{label}</span>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect class="all" width="100" height="8" /><rect class="used" width={Math.min(100, percent)} height="8" />
      </svg>
      <span class="amount">{used}</span>
    </div>
  );
}
