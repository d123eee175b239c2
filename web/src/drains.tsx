// Nodes that are being drained from here, and who is still on them.

import { onMap, podAddress } from "./address";
import { remove } from "./api";
import { cluster } from "./cluster";
import { labelled, useAnswer } from "./parts";
import { count, lasting } from "./words";

interface Drain {
  node: string; state: "under way" | "done" | "failed" | "stopped"; trouble: string; began: number; ended: number | null;
  evicted: number; left: { pod: string; why: string }[]; leftCount: number; stays: string[];
}

/** ``turn`` grows when another one was begun. */
export function Drains({ turn }: { turn: number }) {
  const live = !!cluster.about?.changes;
  const { data } = useAnswer<{ drains: Drain[] }>("drains", { turn }, !live, 1);
  if (!data?.drains.length) return null;
  return (
    <section aria-label="drains">
      <h2>Drains</h2>
      {data.drains.map((drain) => <Progress drain={drain} />)}
    </section>
  );
}

const SAID: Record<Drain["state"], string> = { "under way": "is being drained", done: "is drained", failed: "could not be drained", stopped: "is no longer being drained" };
const LOOKS: Record<Drain["state"], string> = { "under way": "waiting", done: "bound", failed: "impossible", stopped: "unschedulable" };

function Progress({ drain }: { drain: Drain }) {
  const { evicted, leftCount, left, stays } = drain;
  const lasted = lasting((drain.ended ?? cluster.picture?.at ?? drain.began) - drain.began);
  const all = Math.max(1, evicted + left.filter((each) => each.why !== "terminating").length + Math.max(0, leftCount - left.length));
  const gone = Math.max(0, evicted - left.filter((each) => each.why === "terminating").length);
  return (
    <article class={`cause ${LOOKS[drain.state]}`}>
      <h2>Node <a href={onMap("node", drain.node)}>{drain.node}</a> {SAID[drain.state]} <span>{drain.state === "under way" ? `for ${lasted}` : `after ${lasted}`}</span></h2>
      <progress max={all} value={drain.state === "done" ? all : gone} aria-label={`drain of ${drain.node}`} />
      <p role="status">{count(evicted, "pod")} evicted, {leftCount} left.</p>
      {drain.trouble && <p class="trouble" role="alert">{drain.trouble}</p>}
      {left.length > 0 && (
        <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label={`pods that are still on ${drain.node}`}>
          <table>
            <thead><tr><th scope="col">pod</th><th scope="col">reason</th></tr></thead>
            <tbody>{left.slice(0, 50).map((each) => <tr><th scope="row"><a href={podAddress(each.pod)}>{each.pod}</a></th><td>{each.why}</td></tr>)}</tbody>
          </table>
          {leftCount > 50 && <p class="faint">and {leftCount - 50} more</p>}
        </div>
      )}
      {stays.length > 0 && <p class="faint">DaemonSet pods, not evicted: {stays.slice(0, 10).join(", ")}{stays.length > 10 && ` and ${stays.length - 10} more`}</p>}
      {drain.state === "under way" && <p><button type="button" onClick={() => void remove("drains", { node: drain.node })}>stop</button> <span class="faint">The node stays cordoned.</span></p>}
    </article>
  );
}
