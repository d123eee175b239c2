// A recorded run along its time: a slider with marks where something changed, play and speed.

import { useEffect, useRef, useState } from "preact/hooks";
import { go, read, withOptions } from "./address";
import { useCluster } from "./parts";

const TICK = 250;
const SPEEDS = [1, 5, 20, 60, 300, 1200];

export function Player() {
  const cluster = useCluster();
  const span = cluster.about?.span ?? null;
  const said = read().options.get("at");
  const at = span ? Math.min(span.length, Math.max(0, said === null ? span.length : Number(said) || 0)) : 0;
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(0);
  const now = useRef(at);
  now.current = at;
  const chosen = speed || (span ? SPEEDS.find((each) => span.length / each <= 40) ?? SPEEDS.at(-1)! : 1);

  useEffect(() => {
    if (span) void cluster.seek(at);
  }, [at, span?.length]);
  useEffect(() => {
    if (!playing || !span) return;
    let ended = false;
    const step = async () => {
      while (!ended) {
        const begun = performance.now();
        const end = cluster.about?.span?.length ?? span.length; // it may have gone on since
        const next = Math.min(end, now.current + (TICK / 1000) * chosen);
        await cluster.seek(next).catch(() => {});
        if (ended) return;
        go(withOptions({ at: rounded(next) }), true);
        if (next >= end) return setPlaying(false);
        await new Promise((resume) => setTimeout(resume, Math.max(30, TICK - (performance.now() - begun))));
      }
    };
    void step();
    return () => { ended = true; };
  }, [playing, chosen]);

  if (!span) return null;
  const play = () => {
    if (!playing && at >= span.length) go(withOptions({ at: 0 }), true);
    setPlaying(!playing);
  };
  const step = (forward: boolean) => {
    const next = forward ? span.marks.find((mark) => mark > at + 1e-6) : span.marks.findLast((mark) => mark < at - 1e-6);
    setPlaying(false);
    go(withOptions({ at: rounded(next ?? (forward ? span.length : 0), forward) }), true);
  };
  return (
    <section class="player" aria-label="time of the run">
      <button type="button" onClick={play} class="main">{playing ? "❚❚ pause" : "▶ play"}</button>
      <button type="button" onClick={() => step(false)} aria-label="to the previous change">◂</button>
      <button type="button" onClick={() => step(true)} aria-label="to the next change">▸</button>
      <div class="slide">
        <svg viewBox={`0 0 1000 6`} preserveAspectRatio="none" aria-hidden="true">
          {span.marks.map((mark) => <rect x={(1000 * mark) / (span.length || 1)} width="1.5" height="6" />)}
        </svg>
        <input
          type="range" min={0} max={span.length} step={Math.max(0.001, span.length / 2000)} value={at} aria-label="time" aria-valuetext={told(at)}
          onInput={(event) => { setPlaying(false); go(withOptions({ at: rounded(Number(event.currentTarget.value)) }), true); }}
        />
      </div>
      <output>{told(at)} <span class="faint">of {told(span.length)}</span></output>
      <label><span class="unseen">speed</span>
        <select value={chosen} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
          {SPEEDS.map((each) => <option value={each}>{each}×</option>)}
        </select>
      </label>
    </section>
  );
}

/** To the millisecond; a step to a change goes to just after it. */
function rounded(seconds: number, up = false): number {
  return (up ? Math.ceil(seconds * 1000) : Math.round(seconds * 1000)) / 1000;
}

function told(seconds: number): string {
  const whole = Math.floor(seconds), pad = (value: number) => String(value).padStart(2, "0");
  const small = seconds < 600 ? `.${String(Math.floor((seconds - whole) * 10))}` : "";
  return `${whole >= 3600 ? `${Math.floor(whole / 3600)}:` : ""}${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}${small}`;
}
