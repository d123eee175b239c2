// Pods that wait, by cause, worst first: what dray why says without a pod.

import { podAddress, read } from "./address";
import { cluster } from "./cluster";
import { Command, Shown, useAnswer, Verdict } from "./parts";
import { count, lasting } from "./words";

export type Commands = Record<string, string>;
interface Cause {
  verdict: string; summary: string; since: number | null; each: { pod: string; since: number | null }[];
  fixes: string[]; commands: Commands;
}
interface Waiting { pods: number; waiting: number; causes: Cause[] }

const NAMED = 12;

export function WaitingView() {
  const answer = useAnswer<Waiting>("waiting", { at: read().options.get("at") });
  return (
    <div class="page">
      <h1>Waiting pods</h1>
      <Shown answer={answer}>
        {(told) => (
          <>
            <p class="faint">{told.waiting ? `${told.waiting} of ${count(told.pods, "pod")} pending, for ${count(told.causes.length, "reason")}` : told.pods ? "No pods are pending." : "No pods found."}</p>
            {told.causes.map((cause) => <CauseCard cause={cause} />)}
          </>
        )}
      </Shown>
    </div>
  );
}

function CauseCard({ cause }: { cause: Cause }) {
  const now = cluster.picture?.at ?? Date.now() / 1000;
  return (
    <article class={`cause ${cause.verdict}`}>
      <h2><Verdict verdict={cause.verdict} /> <span>{count(cause.each.length, "pod")}{cause.since !== null && `, for up to ${lasting(now - cause.since)}`}</span></h2>
      <p>{cause.summary}</p>
      <ul class="pods">
        {cause.each.slice(0, NAMED).map(({ pod, since }) => (
          <li><a href={podAddress(pod)}>{pod}</a>{since !== null && <span class="faint"> {lasting(now - since)}</span>}</li>
        ))}
      </ul>
      {cause.each.length > NAMED && (
        <details>
          <summary>{cause.each.length - NAMED} more</summary>
          <ul class="pods">{cause.each.slice(NAMED, 2000).map(({ pod }) => <li><a href={podAddress(pod)}>{pod}</a></li>)}</ul>
        </details>
      )}
      <Fixes fixes={cause.fixes.slice(0, 1)} commands={cause.commands} />
    </article>
  );
}

export function Fixes({ fixes, commands }: { fixes: string[]; commands: Commands }) {
  if (!fixes.length) return null;
  return (
    <section>
      <h3>What would help</h3>
      <ul class="fixes">
        {fixes.map((fix) => <li>{fix}{commands[fix] && <Command text={commands[fix]} />}</li>)}
      </ul>
    </section>
  );
}
