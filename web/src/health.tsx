// Health: what dray verify proves, and numbers over time.

import { read } from "./address";
import { cluster } from "./cluster";
import { Shown, useAnswer } from "./parts";
import { clock, count } from "./words";

interface Finding { rule: string; objects: string[]; detail: string }
interface Report { ok: boolean; found: boolean; checked: Record<string, number>; violations: Finding[]; leftovers: Finding[] }
type Point = [number, number, number, number];

const at = () => read().options.get("at");

export function HealthBadge() {
  const { data } = useAnswer<Report>("verify", { at: at() });
  if (!data) return null;
  const said = data.ok ? "nothing is owned twice" : count(data.violations.length, "violation");
  return <span class={data.ok ? "badge ok" : "badge broken"} title={said}>{data.ok ? "✓" : `✕ ${data.violations.length}`}<span class="unseen"> {said}</span></span>;
}

export function HealthView() {
  const report = useAnswer<Report>("verify", { at: at() });
  const series = useAnswer<{ points: Point[] }>("series", {});
  return (
    <div class="page">
      <h1>Health</h1>
      <Shown answer={report}>{(found) => <Verified report={found} />}</Shown>
      <h2>Over time</h2>
      <Shown answer={series}>
        {({ points }) => (
          <div class="plots">
            <Plot title="pods that wait" points={points} of={1} />
            <Plot title="pods with a node" points={points} of={2} />
            <Plot title="devices in use" points={points} of={3} />
          </div>
        )}
      </Shown>
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
        ? <p class="lead"><span class="verdict bound" aria-hidden="true">✓</span> Nothing is owned twice; every rule holds.</p>
        : <><p class="lead trouble">{count(report.violations.length, "violation")}:</p><Findings found={report.violations} /></>}
      {report.leftovers.length > 0 && <><p class="faint">{count(report.leftovers.length, "leftover")}, normal for a short while:</p><Findings found={report.leftovers} /></>}
    </section>
  );
}

function Findings({ found }: { found: Finding[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="findings">
      <table>
        <thead><tr><th scope="col">rule</th><th scope="col">objects</th><th scope="col">detail</th></tr></thead>
        <tbody>{found.slice(0, 200).map((each) => <tr><td>{each.rule}</td><td>{each.objects.map((name) => <div>{name}</div>)}</td><td>{each.detail}</td></tr>)}</tbody>
      </table>
    </div>
  );
}

const WIDE = 320, HIGH = 90;

/** A line of steps: what is counted stays until it changes. */
function Plot({ title, points, of }: { title: string; points: Point[]; of: 1 | 2 | 3 }) {
  if (!points.length) return null;
  const first = points[0]![0], last = Math.max(points.at(-1)![0], first + 1);
  const most = Math.max(1, ...points.map((point) => point[of]));
  const x = (when: number) => ((when - first) / (last - first)) * WIDE, y = (value: number) => HIGH - 4 - (value / most) * (HIGH - 12);
  const line = points.map((point, number) => `${number ? `H${x(point[0]).toFixed(1)}V` : `M${x(point[0]).toFixed(1)},`}${y(point[of]).toFixed(1)}`).join("");
  const now = cluster.about?.span ? cluster.picture?.at : undefined;
  const present = now === undefined ? points.at(-1)! : (points.findLast((point) => point[0] <= now) ?? points[0]!);
  return (
    <figure>
      <figcaption>{title} <b>{present[of]}</b> <span class="faint">(at most {most})</span></figcaption>
      <svg viewBox={`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label={`${title}: ${present[of]} now, at most ${most}, from ${clock(first).slice(0, 8)} to ${clock(last).slice(0, 8)}`}>
        <path class="area" d={`${line}H${WIDE}V${HIGH}H0Z`} />
        <path class="line" d={`${line}H${WIDE}`} />
        {now !== undefined && <line class="now" x1={x(now)} x2={x(now)} y1="0" y2={HIGH} />}
      </svg>
      <div class="ends faint"><span>{clock(first).slice(0, 8)}</span><span>{clock(last).slice(0, 8)}</span></div>
    </figure>
  );
}
