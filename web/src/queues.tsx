// The tree of queues: what each may have, deserves, holds and asks for, as bars on one scale. What dray queues says.

import { go, read, withOptions } from "./address";
import { amount } from "./details";
import { Shown, useAnswer } from "./parts";
import { count } from "./words";

interface Row {
  name: string; parent: string; depth: number; priority: number; waitingPods: number;
  quota: Record<string, string>; limit: Record<string, string>; fairShare: Record<string, string>;
  allocated: Record<string, string>; requested: Record<string, string>;
}
interface Tree { queues: Row[]; total: Record<string, string>; wrong: Record<string, string>; resources: string[] }

export function QueuesView() {
  const answer = useAnswer<Tree>("queues", { at: read().options.get("at") });
  return (
    <div class="page">
      <h1>Queues</h1>
      <Shown answer={answer}>{(tree) => <Told tree={tree} />}</Shown>
    </div>
  );
}

function Told({ tree }: { tree: Tree }) {
  const asked = read().options.get("resource") ?? "";
  const resource = tree.resources.includes(asked) ? asked : (tree.resources[0] ?? "");
  if (!tree.queues.length) return <p>There are no queues: pods are scheduled by priority and age.</p>;
  const scale = Math.max(1, amount(tree.total[resource] ?? "0"), ...tree.queues.flatMap((row) => [row.allocated, row.quota].map((amounts) => amount(amounts[resource] ?? "0"))));
  return (
    <>
      <p>
        <label>resource <select value={resource} onChange={(event) => go(withOptions({ resource: event.currentTarget.value }))}>
          {tree.resources.map((name) => <option value={name}>{name}</option>)}
        </select></label> <span class="faint">{tree.total[resource] ?? "0"} in the cluster</span>
      </p>
      <ul class="legend" aria-label="legend"><li><i class="key used" /> held</li><li><i class="key asked" /> asked for</li><li><i class="key share" /> share that it deserves</li><li><i class="key quota" /> quota</li></ul>
      <div class="scroll" tabIndex={0} role="region" aria-label="queues">
        <table class="queues">
          <thead><tr><th scope="col">queue</th><th scope="col" class="number">priority</th><th scope="col" class="number">waiting</th><th scope="col" class="wide">of {tree.total[resource] ?? "0"} {resource}</th>
            {["held", "share", "quota", "limit"].map((name) => <th scope="col" class="number">{name}</th>)}</tr></thead>
          <tbody>{tree.queues.map((row) => <Line row={row} resource={resource} scale={scale} />)}</tbody>
        </table>
      </div>
      {Object.entries(tree.wrong).map(([name, error]) => <p class="taint">queue {name} is not used: {error}</p>)}
    </>
  );
}

function Line({ row, resource, scale }: { row: Row; resource: string; scale: number }) {
  const said = (amounts: Record<string, string>) => (amounts[resource] ?? "0").replace("unlimited", "-");
  const wide = (amounts: Record<string, string>) => Math.min(100, (100 * amount(amounts[resource] ?? "0")) / scale);
  const told = `holds ${said(row.allocated)}, asks for ${said(row.requested)}, deserves ${said(row.fairShare)}, quota ${said(row.quota)}`;
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
      {[row.allocated, row.fairShare, row.quota, row.limit].map((amounts) => <td class="number">{said(amounts)}</td>)}
    </tr>
  );
}
