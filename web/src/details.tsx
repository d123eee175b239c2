// What is known of the node or device that was chosen on the map.

import { useEffect, useRef } from "preact/hooks";
import { go, link, onMap, podAddress, read, withOptions } from "./address";
import { Bar, Shown, State, useAnswer } from "./parts";
import { Timeline, type Line } from "./timeline";
import { added, tainting, WHAT_IF } from "./whatif";
import { count } from "./words";

interface PodBrief { pod: string; phase: string; node: string; owner: string; priority: number }
interface Row {
  driver: string; pool: string; device: string; node: string; state: string; detail: string; taints: string[];
  users: { claim: string; pods: string[]; request: string; consumed: Record<string, string>; admin?: boolean }[];
  capacity: Record<string, { used: string; total: string }>;
  counters: Record<string, Record<string, string>>;
}
interface NodeDetails {
  name: string; labels: Record<string, string>; cordoned: boolean; taints: string[];
  conditions: { type: string; status: string; message: string }[];
  resources: { resource: string; used: string; total: string }[];
  devices: Row[]; pods: PodBrief[];
}
interface DeviceDetails extends Row {
  name: string; attributes: Record<string, unknown>; bars: { counterSet: string; counter: string; used: string; total: string }[];
  holders: { claim: string; since: string | null; pods: PodBrief[] }[];
  rules: { rule: string; taint: string }[]; story: Line[];
}

export function Panel({ on }: { on: string }) {
  const [kind = "", ...rest] = on.split(":");
  const name = rest.join(":");
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus({ preventScroll: true }), [on]);
  const close = () => {
    go(withOptions({ on: null }));
    document.querySelector<HTMLElement>(".stage canvas")?.focus();
  };
  return (
    <aside class="panel" aria-label={`${kind} ${name}`} onKeyDown={(event) => event.key === "Escape" && close()}>
      <header>
        <h2 tabIndex={-1} ref={heading}><span class="faint">{kind}</span> {name.split("/").at(-1)}</h2>
        <button type="button" onClick={close} aria-label="close">✕</button>
      </header>
      {kind === "node" ? <NodePanel name={name} /> : <DevicePanel name={name} />}
    </aside>
  );
}

const at = () => read().options.get("at");

function NodePanel({ name }: { name: string }) {
  const answer = useAnswer<NodeDetails>("node", { name, at: at() });
  return (
    <Shown answer={answer}>
      {(node) => (
        <>
          <p>
            {node.conditions.filter((each) => each.type === "Ready").map((each) => (each.status === "True" ? "ready" : `not ready: ${each.message}`))}
            {node.cordoned && ", cordoned: no new pods"}
            {node.taints.map((taint) => <div class="taint">{taint}</div>)}
          </p>
          <p class="actions">what if: {(node.cordoned ? ["uncordon", "drain", "remove"] : ["cordon", "drain", "remove"]).map((what) => <a href={added(what, node.name, true)}>{WHAT_IF[what]}</a>)}<a href={tainting("taint", node.name)}>{WHAT_IF.taint}</a></p>
          <h3>devices</h3>
          {!node.devices.length && <p class="faint">none of its own</p>}
          <Devices rows={node.devices.filter((row) => row.state !== "incompatible")} />
          <Excluded rows={node.devices.filter((row) => row.state === "incompatible")} />
          <h3>resources</h3>
          {node.resources.map(({ resource, used, total }) => <Bar label={resource} used={`${used} of ${total}`} percent={percent(used, total)} />)}
          <h3>pods</h3>
          <Pods pods={node.pods} />
          <h3>labels</h3>
          <dl class="facts">{Object.entries(node.labels).map(([key, value]) => <><dt>{key}</dt><dd>{value || "(empty)"}</dd></>)}</dl>
        </>
      )}
    </Shown>
  );
}

function Devices({ rows }: { rows: Row[] }) {
  return (
    <ul class="rows">
      {rows.map((row) => (
        <li>
          <State state={row.state} used={share(row)} />
          <a href={onMap("device", `${row.driver}/${row.pool}/${row.device}`)}>{row.device}</a>
          <span class="faint">{users(row)}</span>
        </li>
      ))}
    </ul>
  );
}

/** Of hundreds of partitions most exclude each other; those are for who asks. */
function Excluded({ rows }: { rows: Row[] }) {
  if (!rows.length) return null;
  return <details open={rows.length <= 4}><summary>{count(rows.length, "device")} incompatible with what is in use beside them</summary><Devices rows={rows} /></details>;
}

function DevicePanel({ name }: { name: string }) {
  const answer = useAnswer<DeviceDetails>("device", { name, at: at() });
  return (
    <Shown answer={answer}>
      {(device) => (
        <>
          <p><State state={device.state} used={share(device)} />{device.detail && `: ${device.detail}`}</p>
          <dl class="facts">
            <dt>driver</dt><dd>{device.driver}</dd>
            <dt>pool</dt><dd>{device.pool}</dd>
            <dt>node</dt><dd>{device.node && device.node !== "*" ? <a href={onMap("node", device.node)}>{device.node}</a> : "(by selector)"}</dd>
          </dl>
          {device.taints.length > 0 && <><h3>taints</h3><ul class="rows">{device.taints.map((taint) => <li class="taint">{taint}</li>)}</ul></>}
          {device.rules.length > 0 && <p class="faint">by rule {device.rules.map(({ rule }) => rule).join(", ")}</p>}
          <p class="actions">what if: <a href={tainting("taintDevices", device.name)}>{WHAT_IF.taint}</a><a href={link("taints", device.name)}>which pods would a taint evict?</a></p>
          <h3>used by</h3>
          {!device.holders.length && <p class="faint">not in use</p>}
          {device.holders.map((holder) => (
            <section class="holder">
              <p>claim <b>{holder.claim}</b>{holder.since && <span class="faint"> since {holder.since}</span>}</p>
              <Pods pods={holder.pods} />
            </section>
          ))}
          {Object.keys(device.capacity).length > 0 && <h3>capacity</h3>}
          {Object.entries(device.capacity).map(([key, { used, total }]) => <Bar label={key} used={`${used} of ${total}`} percent={percent(used, total)} />)}
          {device.bars.length > 0 && <h3>counters of {device.bars[0]!.counterSet}</h3>}
          {device.bars.map(({ counter, used, total }) => <Bar label={counter} used={`${used} of ${total}`} percent={percent(used, total)} />)}
          <h3>attributes</h3>
          <dl class="facts">{Object.entries(device.attributes).map(([key, value]) => <><dt>{key}</dt><dd>{Array.isArray(value) ? value.join(", ") : String(value)}</dd></>)}</dl>
          <h3>what happened</h3>
          <Timeline lines={device.story} />
        </>
      )}
    </Shown>
  );
}

export function Pods({ pods }: { pods: PodBrief[] }) {
  if (!pods.length) return <p class="faint">no pods</p>;
  return (
    <ul class="rows">
      {pods.slice(0, 200).map((pod) => (
        <li><a href={podAddress(pod.pod)}>{pod.pod}</a> <span class="faint">{pod.phase}{pod.owner && `, of ${pod.owner}`}</span></li>
      ))}
      {pods.length > 200 && <li class="faint">and {pods.length - 200} more</li>}
    </ul>
  );
}

function users(row: Row): string {
  if (row.detail) return row.detail;
  const names = row.users.flatMap((user) => (user.pods.length ? user.pods : [`claim ${user.claim}`]));
  return names.slice(0, 2).join(", ") + (names.length > 2 ? ` and ${names.length - 2} more` : "");
}

function share(row: Row): number {
  if (row.state === "allocated") return 100;
  return Math.max(0, ...Object.values(row.capacity).map(({ used, total }) => percent(used, total)));
}

const UNITS: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** An amount as a number, for the length of bars alone; amounts are shown as they are written. Unlimited is nothing to draw. */
export function amount(text: string): number {
  const found = /^([0-9.]+)([A-Za-z]*)$/.exec(text);
  return found ? Number(found[1]) * (UNITS[found[2]!] ?? 1) : 0;
}

export function percent(used: string, total: string): number {
  return amount(total) ? Math.round((100 * amount(used)) / amount(total)) : 0;
}
