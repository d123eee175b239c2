// What would come of a change: manifests that are pasted or dropped, nodes that are cordoned, drained or lost. Nothing is changed by asking.

import { useEffect, useState } from "preact/hooks";
import { go, onMap, podAddress, read, write } from "./address";
import { post } from "./api";
import { cluster } from "./cluster";
import { Command } from "./parts";

/** Options in the address, and what they are called. */
export const WHAT_IF: Record<string, string> = { cordon: "cordon it", uncordon: "uncordon it", drain: "drain it", remove: "lose it" };
const FLAGS: Record<string, string> = { cordon: "--cordon", uncordon: "--uncordon", drain: "--drain", remove: "--remove-node" };

/** The address of this view with one more change. */
export function added(what: string, node: string): string {
  const { view, options } = read();
  const known = view === "what-if" ? Object.fromEntries(options) : (JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") as Record<string, string>);
  const names = new Set((known[what] ?? "").split(",").filter(Boolean));
  names.add(node);
  return write("what-if", "", { ...known, at: options.get("at"), [what]: [...names].join(",") });
}

const KEPT = "dray-what-if";
let typed = "";

interface Planned { pod: string; verdict: string; node: string; devices?: { pool: string; device: string; driver: string }[]; after?: string[]; summary?: string; insteadOf?: string }
interface Plan {
  told: string; pods: Planned[]; others: Planned[]; protected: string[]; settled: boolean;
  evictions: { pod: string; node: string; why: string; findsPlace: boolean; placeThen: string }[];
  compared: [string, string, string][];
}

export function WhatIfView() {
  const { options } = read();
  const changes = Object.keys(FLAGS).flatMap((what) => (options.get(what) ?? "").split(",").filter(Boolean).map((node) => [what, node] as const));
  const [manifests, setManifests] = useState(typed);
  const [answer, setAnswer] = useState<Plan | null>(null);
  const [trouble, setTrouble] = useState("");
  const [asking, setAsking] = useState(false);
  const [over, setOver] = useState(false);
  typed = manifests;
  const kept = Object.fromEntries(Object.keys(FLAGS).flatMap((what) => (options.get(what) ? [[what, options.get(what)!]] : [])));
  useEffect(() => sessionStorage.setItem(KEPT, JSON.stringify(kept)));
  const key = JSON.stringify(kept);
  useEffect(() => setAnswer(null), [key, manifests]);

  const ask = async (event: SubmitEvent) => {
    event.preventDefault();
    setAsking(true);
    setTrouble("");
    const at = options.get("at");
    const body = { manifests, ...Object.fromEntries(Object.keys(FLAGS).map((what) => [what, (options.get(what) ?? "").split(",").filter(Boolean)])) };
    try {
      setAnswer(await post<Plan>(`plan${at ? `?at=${at}` : ""}`, body));
    } catch (error) {
      setTrouble((error as Error).message);
    }
    setAsking(false);
  };
  const without = (what: string, node: string) => {
    const names = (options.get(what) ?? "").split(",").filter((name) => name && name !== node);
    go(write("what-if", "", { ...Object.fromEntries(options), [what]: names.join(",") || null }));
  };
  const drop = async (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const files = [...(event.dataTransfer?.files ?? [])].slice(0, 50);
    const texts = await Promise.all(files.map((file) => file.text()));
    setManifests([manifests, ...texts].filter((text) => text.trim()).join("\n---\n"));
  };
  return (
    <div class="page">
      <h1>What if</h1>
      <p class="faint">Where pods would go, who would have to leave, and what is left then, rehearsed with the real scheduler. Nothing is changed.</p>
      <form onSubmit={ask}>
        <label>objects that would be applied: paste manifests, or drop files
          <textarea
            class={over ? "manifests over" : "manifests"} value={manifests} spellcheck={false} placeholder={"apiVersion: v1\nkind: Pod\n…"}
            onInput={(event) => setManifests(event.currentTarget.value)}
            onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)} onDrop={drop}
          />
        </label>
        {changes.length > 0 && (
          <ul class="changes" aria-label="changes of nodes">
            {changes.map(([what, node]) => <li>{what} {node}<button type="button" aria-label={`do not ${what} ${node}`} onClick={() => without(what, node)}>✕</button></li>)}
          </ul>
        )}
        <AddNode />
        <p><button type="submit" class="main" disabled={asking || (!manifests.trim() && !changes.length)}>{asking ? "rehearsing …" : "what would happen?"}</button></p>
      </form>
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      <div role="status">{answer && <Answer plan={answer} changes={changes} files={!!manifests.trim()} />}</div>
    </div>
  );
}

function AddNode() {
  const [what, setWhat] = useState("drain");
  const [node, setNode] = useState("");
  const known = !!cluster.picture?.nodes[node];
  return (
    <div class="try">
      <label>a node <input list="nodes" value={node} onInput={(event) => setNode(event.currentTarget.value)} spellcheck={false} /></label>
      <datalist id="nodes">{Object.keys(cluster.picture?.nodes ?? {}).slice(0, 500).map((name) => <option value={name} />)}</datalist>
      <label>what happens to it
        <select value={what} onChange={(event) => setWhat(event.currentTarget.value)}>{Object.entries(WHAT_IF).map(([name, title]) => <option value={name}>{title}</option>)}</select>
      </label>
      <button type="button" disabled={!known} onClick={() => { go(added(what, node)); setNode(""); }}>add</button>
    </div>
  );
}

function Answer({ plan, changes, files }: { plan: Plan; changes: (readonly [string, string])[]; files: boolean }) {
  const command = ["dray plan", ...(files ? ["-f FILE"] : []), ...changes.map(([what, node]) => `${FLAGS[what]} ${node}`)].join(" ");
  return (
    <article class="preview" aria-label="plan">
      <p class="lead">{plan.told}</p>
      {!plan.settled && <p class="trouble">It had not come to rest when the rehearsal ended.</p>}
      <PodTable title="pods that are asked about" pods={plan.pods} />
      <PodTable title="pods that waited and get a node too" pods={plan.others} />
      {plan.evictions.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="pods that leave">
          <table>
            <thead><tr>{["leaves", "from", "goes to", "why"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
            <tbody>{plan.evictions.slice(0, 200).map((each) => (
              <tr><th scope="row"><a href={podAddress(each.pod)}>{each.pod}</a></th><td>{each.node}</td><td>{each.placeThen || <span class="unplaced">finds no place</span>}</td><td>{each.why}</td></tr>
            ))}</tbody>
          </table>
        </div>
      )}
      {plan.protected.map((pod) => <p class="taint">A disruption budget keeps {pod} where it is.</p>)}
      {plan.compared.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="before and after">
          <table>
            <thead><tr><td /><th scope="col">before</th><th scope="col">after</th></tr></thead>
            <tbody>{plan.compared.map(([name, before, after]) => <tr><th scope="row">{name}</th><td>{before}</td><td>{before === after ? after : <b>{after}</b>}</td></tr>)}</tbody>
          </table>
        </div>
      )}
      <p class="faint">On the command line:</p>
      <Command text={command} />
    </article>
  );
}

function PodTable({ title, pods }: { title: string; pods: Planned[] }) {
  if (!pods.length) return null;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={title}>
      <table>
        <caption class="unseen">{title}</caption>
        <thead><tr>{["pod", "verdict", "node", "devices", "after", "why not"].map((name) => <th scope="col">{name}</th>)}</tr></thead>
        <tbody>
          {pods.slice(0, 200).map((pod) => (
            <tr>
              <th scope="row">{pod.pod}{pod.insteadOf && <div class="faint">instead of {pod.insteadOf}</div>}</th>
              <td class={pod.verdict === "placed" ? "placed" : "unplaced"}>{pod.verdict}</td>
              <td>{pod.node && <a href={onMap("node", pod.node)}>{pod.node}</a>}</td>
              <td>{(pod.devices ?? []).map((device) => <div><a href={onMap("device", `${device.driver}/${device.pool}/${device.device}`)}>{device.pool}/{device.device}</a></div>)}</td>
              <td>{(pod.after ?? []).join(", ")}</td>
              <td class="why">{pod.summary}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {pods.length > 200 && <p class="faint">and {pods.length - 200} more</p>}
    </div>
  );
}
