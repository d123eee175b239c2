// What happened, in order: the lines of dray story along a rail, with the time that passed between them.

import { clock, day, lasting } from "./words";

export interface Line { at: number; what: string; object: string; by?: string; detail?: string }

export function Timeline({ lines }: { lines: Line[] }) {
  if (!lines.length) return <p class="faint">Nothing is known about this pod.</p>;
  const first = lines[0]!.at;
  return (
    <>
      <p class="faint">from {day(first)} UTC</p>
      <ol class="timeline">
        {lines.map((line, at) => (
          <li class={tone(line.what)}>
            <time title={`${day(line.at)} UTC`}>{clock(line.at).slice(0, 8)}</time>
            <span class="after">{passed(line.at - (lines[at - 1]?.at ?? line.at))}</span>
            <div><b>{line.what}</b> <span class="faint">{line.object}{line.by && ` by ${line.by}`}</span>{line.detail && <div class="detail">{line.detail}</div>}</div>
          </li>
        ))}
      </ol>
    </>
  );
}

function passed(seconds: number): string {
  return seconds < 0.0005 ? "" : `+${lasting(seconds)}`;
}

function tone(what: string): string {
  if (/fail|taint|evict|deleted|=False/i.test(what)) return "bad";
  if (/created|allocated|scheduled|started|ready|=True/i.test(what)) return "good";
  return "";
}
