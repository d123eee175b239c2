// The tree of queues: what each may have, deserves, holds and asks for, as bars on one scale (what dray queues says), and how it came to
// be; gangs with their members; evictions with their reasons.

import { go, onMap, podAddress, read, withOptions } from "./address";
import { cluster } from "./cluster";
import { amount } from "./details";
import { labelled, Shown, useAnswer } from "./parts";
import { clock, count, day } from "./words";

interface Row {
  name: string; parent: string; depth: number; priority: number; waitingPods: number;
  quota: Record<string, string>; limit: Record<string, string>; fairShare: Record<string, string>;
  allocated: Record<string, string>; requested: Record<string, string>;
}
type Amounts = Record<string, string>;
/** When; held, asked for, deserved. */
type Past = [number, Amounts, Amounts, Amounts];
interface Gang { gang: string; queue: string; priority: number; needs: number | null; missing: boolean; placed: number; waiting: number; pods: { pod: string; node: string; phase: string }[] }
interface Eviction { at: number; pod: string; reason: string; why: string; for: string }
interface Tree {
  queues: Row[]; total: Amounts; wrong: Record<string, string>; resources: string[];
  history: Record<string, Past[]>; gangs: Gang[]; evictions: Eviction[];
}

export function QueuesView() {
  const answer = useAnswer<Tree>("queues", { at: read().options.get("at") });
  return (
    <div class="page">
      <h1>Queues</h1>
      <Shown answer={answer}>{(tree) => <><Told tree={tree} /><Gangs gangs={tree.gangs} /><Evictions found={tree.evictions} /></>}</Shown>
    </div>
  );
}

function Told({ tree }: { tree: Tree }) {
  const asked = read().options.get("resource") ?? "";
  const resource = tree.resources.includes(asked) ? asked : (tree.resources[0] ?? "");
  if (!tree.queues.length) return <p>No queues found: pods are scheduled by priority and age.</p>;
  const scale = Math.max(1, amount(tree.total[resource] ?? "0"), ...tree.queues.flatMap((row) => [row.allocated, row.quota].map((amounts) => amount(amounts[resource] ?? "0"))));
  return (
    <>
      <p>
        <label>resource <select value={resource} onChange={(event) => go(withOptions({ resource: event.currentTarget.value }))}>
          {tree.resources.map((name) => <option value={name}>{name}</option>)}
        </select></label> <span class="faint">{tree.total[resource] ?? "0"} in the cluster</span>
      </p>
      <ul class="legend" aria-label="legend"><li><i class="key used" /> used</li><li><i class="key asked" /> requested</li><li><i class="key share" /> fair share</li><li><i class="key quota" /> quota</li></ul>
      <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="queues">
        <table class="queues">
          <thead><tr><th scope="col">queue</th><th scope="col" class="number">priority</th><th scope="col" class="number">waiting</th><th scope="col" class="wide">of {tree.total[resource] ?? "0"} {resource}</th><th scope="col" class="past">history</th>
            {["used", "share", "quota", "limit"].map((name) => <th scope="col" class="number">{name}</th>)}</tr></thead>
          <tbody>{tree.queues.map((row) => <Line row={row} resource={resource} scale={scale} past={tree.history[row.name] ?? []} />)}</tbody>
        </table>
      </div>
      {Object.entries(tree.wrong).map(([name, error]) => <p class="taint">queue {name} is ignored: {error}</p>)}
    </>
  );
}

function Line({ row, resource, scale, past }: { row: Row; resource: string; scale: number; past: Past[] }) {
  const said = (amounts: Record<string, string>) => (amounts[resource] ?? "0").replace("unlimited", "-");
  const wide = (amounts: Record<string, string>) => Math.min(100, (100 * amount(amounts[resource] ?? "0")) / scale);
  const told = `uses ${said(row.allocated)}, requests ${said(row.requested)}, share ${said(row.fairShare)}, quota ${said(row.quota)}`;
  return (
    <tr>
      <th scope="row"><span style={{ paddingLeft: `${row.depth * 1.2}rem` }}>{row.name}</span></th>
      <td class="number">{row.priority}</td>
      <td class="number">{row.waitingPods ? count(row.waitingPods, "pod") : ""}</td>
      <td class="wide">
        <svg viewBox="0 0 100 12" preserveAspectRatio="none" role="img" aria-label={`queue ${row.name} ${told}`}>
          <rect class="all" width="100" height="12" />
          <rect class="asked" width={wide(row.requested)} height="12" />
          <rect class="used" y="2" width={wide(row.allocated)} height="8" />
          <line class="share" x1={wide(row.fairShare)} x2={wide(row.fairShare)} y1="0" y2="12" />
          <line class="quota" x1={wide(row.quota)} x2={wide(row.quota)} y1="0" y2="12" />
        </svg>
      </td>
      <td class="past"><History name={row.name} resource={resource} past={past} /></td>
      {[row.allocated, row.fairShare, row.quota, row.limit].map((amounts) => <td class="number">{said(amounts)}</td>)}
    </tr>
  );
}

const WIDE = 120, HIGH = 28;

/** What the queue held as an area, what it asked for and deserved as lines, on the queue's own scale. */
function History({ name, resource, past }: { name: string; resource: string; past: Past[] }) {
  if (past.length < 2) return null;
  const first = past[0]![0], last = cluster.picture?.at ?? past.at(-1)![0];
  const value = (point: Past, of: 1 | 2 | 3) => amount(point[of][resource] ?? "0");
  const most = Math.max(...past.flatMap((point) => [value(point, 1), value(point, 2), value(point, 3)]));
  if (!most) return null;
  const x = (when: number) => (WIDE * (when - first)) / Math.max(1e-3, last - first), y = (value: number) => HIGH - 2 - ((HIGH - 4) * value) / most;
  const line = (of: 1 | 2 | 3) => past.map((point, number) => `${number ? `H${x(point[0]).toFixed(1)}V` : "M0,"}${y(value(point, of)).toFixed(1)}`).join("") + `H${WIDE}`;
  const said = `queue ${name} from ${clock(first).slice(0, 8)}: used at most ${Math.max(...past.map((point) => value(point, 1)))}, requested at most ${Math.max(...past.map((point) => value(point, 2)))} ${resource}`;
  return (
    <svg viewBox={`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label={said}>
      <title>{said}</title>
      <path class="used" d={`${line(1)}V${HIGH}H0Z`} /><path class="want" d={line(2)} /><path class="due" d={line(3)} />
    </svg>
  );
}

function Gangs({ gangs }: { gangs: Gang[] }) {
  if (!gangs.length) return null;
  return (
    <section>
      <h2>Gangs</h2>
      <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="gangs">
        <table>
          <thead><tr>{["gang", "queue", "needs", "scheduled", "pending", "members"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
          <tbody>{gangs.map((gang) => (
            <tr>
              <th scope="row">{gang.gang}{gang.missing && <div class="taint">its PodGroup does not exist</div>}</th>
              <td>{gang.queue}</td><td>{gang.needs ?? "by subgroup"}</td><td>{gang.placed}</td><td class={gang.waiting ? "unplaced" : ""}>{gang.waiting || ""}</td>
              <td><details open={gang.pods.length <= 4}><summary>{count(gang.pods.length, "pod")}</summary><ul class="rows">{gang.pods.map((pod) => (
                <li><a href={podAddress(pod.pod)}>{pod.pod}</a>{pod.node ? <a href={onMap("node", pod.node)}>{pod.node}</a> : <span class="unplaced">pending</span>}</li>
              ))}</ul></details></td>
            </tr>
          ))}</tbody>
        </table>
      </div>
    </section>
  );
}

function Evictions({ found }: { found: Eviction[] }) {
  return (
    <section>
      <h2>Evictions</h2>
      {!found.length && <p class="faint">No evictions in the cluster's events.</p>}
      {found.length > 0 && (
        <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="evictions">
          <table>
            <thead><tr>{["time", "pod", "reason", "message"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
            <tbody>{found.map((each) => (
              <tr><td><time>{day(each.at)}</time></td><th scope="row"><a href={podAddress(each.pod)}>{each.pod}</a></th><td>{each.reason}</td><td class="why">{each.why}</td></tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}
