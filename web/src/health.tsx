// Health: what dray verify proves, and numbers over time: of the cluster, and of /metrics.

import { useEffect, useState } from "preact/hooks";
import { read } from "./address";
import { cluster } from "./cluster";
import { labelled, Shown, useAnswer, useCluster } from "./parts";
import { clock, count } from "./words";

interface Finding { rule: string; objects: string[]; detail: string }
interface Report { ok: boolean; found: boolean; checked: Record<string, number>; violations: Finding[]; leftovers: Finding[] }
type Point = [number, number, number, number];
interface Line { label: string; points: [number, number][] }
interface Metrics { read: boolean; trouble: string; plots: { title: string; lines: Line[] }[] }

const at = () => read().options.get("at");

/** What everything else waits for while a large cluster is checked: so it is asked for after the first picture, and then seldom. */
export function HealthBadge() {
  const [soon, set] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => set(true), 3000);
    return () => clearTimeout(timer);
  }, []);
  const { data } = useAnswer<Report>("verify", { at: at() }, !soon, 0, 20);
  if (!data) return null;
  const said = data.ok ? "nothing is allocated twice" : count(data.violations.length, "violation");
  return <span class={data.ok ? "badge ok" : "badge broken"} title={said}>{data.ok ? "✓" : `✕ ${data.violations.length}`}<span class="unseen"> {said}</span></span>;
}

export function HealthView() {
  const report = useAnswer<Report>("verify", { at: at() });
  const series = useAnswer<{ points: Point[] }>("series", {});
  const live = useCluster().about?.mode === "live";
  const metrics = useAnswer<Metrics>("metrics", {}, !live, 5);
  return (
    <div class="page">
      <h1>Health</h1>
      <Shown answer={report}>{(found) => <Verified report={found} />}</Shown>
      <h2>Over time</h2>
      <Shown answer={series}>
        {({ points }) => (
          <div class="plots">
            {["pending pods", "scheduled pods", "devices in use"].map((title, number) => (
              <Plot title={title} lines={[{ label: "", points: points.map((point) => [point[0], point[(number + 1) as 1 | 2 | 3]]) }]} />
            ))}
          </div>
        )}
      </Shown>
      {live && <>
        <h2>Scheduler metrics</h2>
        <Shown answer={metrics}>
          {({ read, trouble, plots }) => (
            <>
              {trouble && <p class="trouble">{trouble}</p>}
              {!read && <p class="faint">No metrics endpoint set: <code>dray ui --metrics URL</code> plots a scheduler's /metrics.</p>}
              {read && !plots.length && !trouble && <p class="faint">no data yet</p>}
              <div class="plots">{plots.map((plot) => <Plot title={plot.title} lines={plot.lines} />)}</div>
            </>
          )}
        </Shown>
      </>}
    </div>
  );
}

function Verified({ report }: { report: Report }) {
  const { checked } = report;
  const of = (name: string) => count(checked[`${name}s`] ?? 0, name);
  return (
    <section>
      <p class="faint">Checked {of("claim")}, {of("device")} in {of("pool")}, {count(checked.allocated ?? 0, "allocation")}, {of("pod")} on {of("node")}.</p>
      {!report.found ? <p>Nothing was checked.</p> : report.ok
        ? <p class="lead"><span class="verdict bound" aria-hidden="true">✓</span> Nothing is allocated twice; all rules hold.</p>
        : <><p class="lead trouble">{count(report.violations.length, "violation")}:</p><Findings found={report.violations} /></>}
      {report.leftovers.length > 0 && <><p class="faint">{count(report.leftovers.length, "leftover")}, normal for a short time:</p><Findings found={report.leftovers} /></>}
    </section>
  );
}

function Findings({ found }: { found: Finding[] }) {
  return (
    <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="findings">
      <table>
        <thead><tr><th scope="col">rule</th><th scope="col">objects</th><th scope="col">detail</th></tr></thead>
        <tbody>{found.slice(0, 200).map((each) => <tr><td>{each.rule}</td><td>{each.objects.map((name) => <div>{name}</div>)}</td><td>{each.detail}</td></tr>)}</tbody>
      </table>
    </div>
  );
}

const WIDE = 320, HIGH = 90;

/** Lines of steps: what is counted stays until it changes. */
function Plot({ title, lines }: { title: string; lines: Line[] }) {
  const drawn = lines.filter((line) => line.points.length);
  if (!drawn.length) return null;
  // In a live cluster what was last counted holds until now.
  const present = cluster.about?.mode === "live" ? Date.now() / 1000 : 0;
  const first = Math.min(...drawn.map((line) => line.points[0]![0])), last = Math.max(first + 1, present, ...drawn.map((line) => line.points.at(-1)![0]));
  const most = Math.max(0, ...drawn.flatMap((line) => line.points.map((point) => point[1])));
  const x = (when: number) => ((when - first) / (last - first)) * WIDE, y = (value: number) => HIGH - 4 - (value / (most || 1)) * (HIGH - 12);
  const path = (points: [number, number][]) => points.map(([when, value], number) => `${number ? `H${x(when).toFixed(1)}V` : `M${x(when).toFixed(1)},`}${y(value).toFixed(1)}`).join("");
  const now = cluster.about?.span ? cluster.picture?.at : undefined;
  const value = (points: [number, number][]) => (now === undefined ? points.at(-1)! : (points.findLast((point) => point[0] <= now) ?? points[0]!))[1];
  const said = drawn.map((line) => `${line.label} ${shortly(value(line.points))}`.trim()).join(", ");
  return (
    <figure>
      <figcaption>{title} {drawn.length === 1 && !drawn[0]!.label && <b>{shortly(value(drawn[0]!.points))}</b>} <span class="faint">(at most {shortly(most)})</span></figcaption>
      <svg viewBox={`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label={`${title}: ${said} now, at most ${shortly(most)}, from ${clock(first).slice(0, 8)} to ${clock(last).slice(0, 8)}`}>
        {drawn.length === 1 && <path class="area" d={`${path(drawn[0]!.points)}H${WIDE}V${HIGH}H0Z`} />}
        {drawn.map((line, number) => <path class={`line line-${number % 4}`} d={`${path(line.points)}H${WIDE}`} />)}
        {now !== undefined && <line class="now" x1={x(now)} x2={x(now)} y1="0" y2={HIGH} />}
      </svg>
      <div class="ends faint"><span>{clock(first).slice(0, 8)}</span><span>{clock(last).slice(0, 8)}</span></div>
      {(drawn.length > 1 || drawn[0]!.label) && (
        <ul class="legend">{drawn.map((line, number) => (
          <li><svg class="key" viewBox="0 0 24 6" aria-hidden="true"><path class={`line line-${number % 4}`} d="M0,3H24" /></svg> {line.label} <b>{shortly(value(line.points))}</b></li>
        ))}</ul>
      )}
    </figure>
  );
}

function shortly(value: number): string {
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}
