// One pod: what dray why and dray story say of it, and the devices that stand against it or that it has.

import { onMap, podAddress, read } from "./address";
import { cluster } from "./cluster";
import { Shown, useAnswer, Verdict } from "./parts";
import { Timeline, type Line } from "./timeline";
import { Fixes, type Commands } from "./waiting";
import { lasting } from "./words";

interface Branch { text: string; branches?: Branch[] }
interface Reason { code: string; message: string; object: string; data?: Record<string, unknown> }
interface Why {
  verdict: string; summary: string; reasons: Reason[]; fixes: string[]; fits: string[];
  nodes: { node: string; reasons: Reason[]; requests?: { claim: string; request: string; devices: { device: string; reason: Reason | null }[] }[] }[];
  awaited: { claim: string; device: string; condition: string; status: string; since: string; deadline: string; message: string }[];
  evicts: { node: string; why: string; victims: { pod: string; node: string; priority: number; devices: string[] }[] } | null;
}
interface PodDetails {
  pod: string; phase: string; node: string; owner: string; priority: number; since: number | null;
  why: Why; commands: Commands; tree: Branch | null; nearest: string; story: Line[];
  devices: { claim: string; request: string; device: string }[];
}

export function PodView({ name }: { name: string }) {
  const answer = useAnswer<PodDetails>("pod", { name, at: read().options.get("at") });
  return (
    <div class="page">
      <h1><span class="faint">pod</span> {name}</h1>
      <Shown answer={answer}>{(pod) => <Told pod={pod} />}</Shown>
    </div>
  );
}

function Told({ pod }: { pod: PodDetails }) {
  const { why } = pod;
  const now = cluster.picture?.at ?? Date.now() / 1000;
  const leaving = why.reasons.filter((reason) => Array.isArray(reason.data?.victims)).flatMap((reason) => reason.data!.victims as string[]);
  return (
    <>
      <p class="faint">
        {pod.phase}{pod.node && <> on <a href={onMap("node", pod.node)}>{pod.node}</a></>}{pod.owner && `, of ${pod.owner}`}
        {`, priority ${pod.priority}`}{pod.since !== null && `, made ${lasting(now - pod.since)} ago`}
      </p>
      <p class="lead"><Verdict verdict={why.verdict} /> {why.summary}</p>
      {why.awaited.length > 0 && <Awaited why={why} now={now} />}
      {leaving.length > 0 && <section><h2>Makes room</h2><ul class="pods">{leaving.map((key) => <li><a href={podAddress(key)}>{key}</a></li>)}</ul></section>}
      {pod.devices.length > 0 && (
        <section>
          <h2>Its devices</h2>
          <ul class="rows">{pod.devices.map((each) => <li><a href={onMap("device", each.device)}>{each.device}</a> <span class="faint">request {each.request} of claim {each.claim}</span></li>)}</ul>
        </section>
      )}
      {pod.tree && <section><h2>Why not</h2><ul class="tree"><Twig branch={pod.tree} /></ul></section>}
      {pod.nearest && <p>{pod.nearest}</p>}
      {why.evicts && <Evicts evicts={why.evicts} />}
      <Fixes fixes={why.fixes} commands={pod.commands} />
      <Against why={why} />
      <section><h2>What happened</h2><Timeline lines={pod.story} /></section>
    </>
  );
}

function Twig({ branch }: { branch: Branch }) {
  return (
    <li>
      <span>{branch.text}</span>
      {branch.branches?.length ? <ul>{branch.branches.map((each) => <Twig branch={each} />)}</ul> : null}
    </li>
  );
}

function Awaited({ why, now }: { why: Why; now: number }) {
  return (
    <section>
      <h2>Waits for its devices</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="awaited conditions">
        <table>
          <thead><tr>{["waiting for", "device", "is", "since", "until", "says"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
          <tbody>
            {why.awaited.map((each) => (
              <tr>
                <td>{each.condition}</td><td><a href={onMap("device", each.device)}>{each.device}</a></td><td>{each.status}</td>
                <td>{each.since}</td><td>{each.deadline} ({left(each.deadline, now)})</td><td>{each.message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Evicts({ evicts }: { evicts: NonNullable<Why["evicts"]> }) {
  return (
    <section>
      <h2>Who would leave</h2>
      <p>The scheduler would make room on node <a href={onMap("node", evicts.node)}>{evicts.node}</a>: {evicts.why}.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="pods that would leave">
        <table>
          <thead><tr>{["would leave", "from", "priority", "gives back"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
          <tbody>{evicts.victims.map((each) => (
            <tr><th scope="row"><a href={podAddress(each.pod)}>{each.pod}</a></th><td>{each.node}</td><td>{each.priority}</td>
              <td>{each.devices.map((device) => <div><a href={onMap("device", device)}>{device}</a></div>)}</td></tr>
          ))}</tbody>
        </table>
      </div>
    </section>
  );
}

function left(deadline: string, now: number): string {
  const seconds = Date.parse(deadline) / 1000 - now;
  return seconds > 0 ? `${lasting(seconds)} left` : "over";
}

const MOST = 60;

/** The devices that a request looked at and cannot have, each with the first check that fails. Those that nobody meant are counted. */
function Against({ why }: { why: Why }) {
  const devices = why.nodes.flatMap((node) => (node.requests ?? []).flatMap((request) => request.devices.filter((device) => device.reason)));
  const all = [...new Map(devices.map((device) => [device.device, device])).values()];
  const meant = all.filter((device) => device.reason!.code !== "DeviceNotSelected");
  if (!meant.length) return null;
  return (
    <section>
      <h2>Devices that stand against it</h2>
      <ul class="rows against">
        {meant.slice(0, MOST).map(({ device, reason }) => <li><a href={onMap("device", device)}>{device}</a> <span class="faint">{reason!.message.replace(`device ${device} `, "")}</span></li>)}
        {meant.length > MOST && <li class="faint">and {meant.length - MOST} more</li>}
      </ul>
      {all.length > meant.length && <p class="faint">{all.length - meant.length} more are not what it asks for.</p>}
    </section>
  );
}
