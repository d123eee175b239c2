// One pod: what dray why and dray story say of it, and the devices that stand against it or that it has.

import { link, onMap, podAddress, read } from "./address";
import { cluster, NAME } from "./cluster";
import { labelled, Shown, useAnswer, Verdict } from "./parts";
import { Timeline, type Line } from "./timeline";
import { Fixes, type Commands } from "./waiting";
import { lasting } from "./words";

interface Branch { text: string; branches?: Branch[] }
interface Reason { code: string; message: string; object: string; data?: Record<string, unknown> }
interface Why {
  verdict: string; summary: string; reasons: Reason[]; fixes: string[]; fits: string[];
  nodes: { node: string; reasons: Reason[]; requests?: { claim: string; request: string; devices: { device: string; reason: Reason | null }[] }[] }[];
  awaited: { claim: string; device: string; condition: string; status: string; since: string; deadline: string; message: string }[];
  evicts: { node: string; why: string; victims: { pod: string; node: string; priority: number; devices: string[]; queue?: string; to?: string }[] } | null;
  queued: { queue: string; group?: string; of?: { resource: string; held: string; fairShare: string; quota: string; limit: string }[] } | null;
  notes: string[];
}
interface Chosen { told: string; node: string; compared: number; nodes: { node: string; points: number }[]; devices: string[] }
interface PodDetails {
  pod: string; phase: string; node: string; owner: string; priority: number; since: number | null;
  why: Why; commands: Commands; tree: Branch | null; nearest: string; waits: string; chosen: Chosen | null; story: Line[];
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
        {`, priority ${pod.priority}`}{pod.since !== null && `, created ${lasting(now - pod.since)} ago`}
      </p>
      <p class="lead"><Verdict verdict={why.verdict} /> {why.summary}</p>
      {why.awaited.length > 0 && <Awaited why={why} now={now} />}
      {leaving.length > 0 && <section><h2>Pods being evicted for it</h2><ul class="pods">{leaving.map((key) => <li><a href={podAddress(key)}>{key}</a></li>)}</ul></section>}
      {pod.devices.length > 0 && (
        <section>
          <h2>Devices</h2>
          <ul class="rows">{pod.devices.map((each) => <li><a href={onMap("device", each.device)}>{each.device}</a> <span class="faint">request {each.request} of claim {each.claim}</span></li>)}</ul>
        </section>
      )}
      {pod.tree && <section><h2>Why it does not fit</h2><ul class="tree"><Twig branch={pod.tree} /></ul></section>}
      {pod.nearest && <p>{pod.nearest}</p>}
      {why.queued && <Queued why={why} waits={pod.waits} />}
      {why.evicts && <Evicts evicts={why.evicts} />}
      <Fixes fixes={why.fixes} commands={pod.commands} />
      {!why.fixes.length && why.nodes.length > 0 && ["unschedulable", "impossible"].includes(why.verdict) && <p class="faint">None of the changes that Dray tried would help.</p>}
      {why.notes.map((note) => <p>{note}</p>)}
      {pod.chosen && <WhyThere chosen={pod.chosen} placed={why.verdict === "bound"} />}
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
      <h2>Waiting for devices</h2>
      <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="awaited conditions">
        <table>
          <thead><tr>{["condition", "device", "status", "since", "deadline", "message"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
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

/** What dray why says of the queue and the gang that the pod waits in. */
function Queued({ why, waits }: { why: Why; waits: string }) {
  const rows = why.queued!.of ?? [];
  if (!waits && !rows.length) return null;
  return (
    <section>
      <h2>Queue</h2>
      <p>{waits} <a href={link("queues")}>all queues</a></p>
      {rows.length > 0 && (
        <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="resources of the queue">
          <table>
            <thead><tr>{["resource", "used", "share", "quota", "limit"].map((title, number) => <th scope="col" class={number ? "number" : ""}>{title}</th>)}</tr></thead>
            <tbody>{rows.map((each) => (
              <tr><th scope="row">{each.resource}</th>{[each.held, each.fairShare, each.quota, each.limit].map((amount) => <td class="number">{amount}</td>)}</tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** What dray why says of the node that was chosen, or would be. */
function WhyThere({ chosen, placed }: { chosen: Chosen; placed: boolean }) {
  const more = chosen.compared - chosen.nodes.length;
  return (
    <section>
      <h2>Why this node</h2>
      <p class="sentence">{chosen.told}{placed && " (if it were scheduled now)"}.</p>
      {chosen.nodes.length > 1 && (
        <table class="narrow">
          <thead><tr><th scope="col">node</th><th scope="col" class="number">points</th></tr></thead>
          <tbody>{chosen.nodes.map(({ node, points }) => <tr><th scope="row"><a href={onMap("node", node)}>{node}</a>{node === chosen.node && " *"}</th><td class="number">{points}</td></tr>)}</tbody>
        </table>
      )}
      {more > 0 && <p class="faint">{more} more {more === 1 ? "node scores" : "nodes score"} no better.</p>}
      {chosen.devices.length > 0 && <ul class="rows">{chosen.devices.map((text) => <li>{text}</li>)}</ul>}
    </section>
  );
}

function Evicts({ evicts }: { evicts: NonNullable<Why["evicts"]> }) {
  const queues = evicts.victims.some((each) => each.queue), moves = evicts.victims.some((each) => each.to);
  return (
    <section>
      <h2>Pods that would be evicted</h2>
      <p>The scheduler would make room on node <a href={onMap("node", evicts.node)}>{evicts.node}</a>: {evicts.why}.</p>
      <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="pods that would be evicted">
        <table>
          <thead><tr>{["evicts", "from", "priority", ...(queues ? ["queue"] : []), ...(moves ? ["moves to"] : []), "frees"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
          <tbody>{evicts.victims.map((each) => (
            <tr><th scope="row"><a href={podAddress(each.pod)}>{each.pod}</a></th><td>{each.node}</td><td>{each.priority}</td>{queues && <td>{each.queue}</td>}{moves && <td>{each.to}</td>}
              <td>{each.devices.map((device) => <div><Device name={device} /></div>)}</td></tr>
          ))}</tbody>
        </table>
      </div>
    </section>
  );
}

/** A device that is named by pool and name alone, as in tables of the command line; a link where the map knows which one it is. */
function Device({ name }: { name: string }) {
  const pool = Object.values(cluster.picture?.pools ?? {}).find((each) => name.startsWith(`${each.pool}/`) && each.devices.some((cell) => cell[NAME] === name.slice(each.pool.length + 1)));
  return pool ? <a href={onMap("device", `${pool.driver}/${name}`)}>{name}</a> : <>{name}</>;
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
      <h2>Devices it cannot use</h2>
      <ul class="rows against">
        {meant.slice(0, MOST).map(({ device, reason }) => <li><a href={onMap("device", device)}>{device}</a> <span class="faint">{reason!.message.replace(`device ${device} `, "")}</span></li>)}
        {meant.length > MOST && <li class="faint">and {meant.length - MOST} more</li>}
      </ul>
      {all.length > meant.length && <p class="faint">{all.length - meant.length} more do not match the request.</p>}
    </section>
  );
}
