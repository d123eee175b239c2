// What would come of a change: manifests that are pasted or dropped, nodes that are cordoned, drained, tainted or lost, devices that are
// tainted. Nothing is changed by asking; where it is allowed, what was shown can be done then.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { go, onMap, podAddress, read, withOptions, write } from "./address";
import { post } from "./api";
import { cluster } from "./cluster";
import { Drains } from "./drains";
import { Command, labelled } from "./parts";
import { count } from "./words";

/** Options in the address, and what they are called. */
export const WHAT_IF: Record<string, string> = { cordon: "cordon it", uncordon: "uncordon it", drain: "drain it", remove: "remove it", taint: "taint it" };
const FLAGS: Record<string, string> = { cordon: "--cordon", uncordon: "--uncordon", drain: "--drain", remove: "--remove-node", taint: "--taint", taintDevices: "--taint-device" };
const KINDS = Object.keys(FLAGS);
const SAID: Record<string, string> = { ...Object.fromEntries(KINDS.map((what) => [what, what])), taintDevices: "taint" };
const TAINTS = new Set(["taint", "taintDevices"]);

/** What is in the address, as a list: names of nodes, or "TARGET TAINT". None of them can have a comma in it. */
const listed = (options: URLSearchParams, what: string) => (options.get(what) ?? "").split(",").filter(Boolean);

function known(): Record<string, string> {
  const { view, options } = read();
  if (view !== "what-if") return JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") as Record<string, string>;
  return Object.fromEntries(KINDS.flatMap((what) => (options.get(what) ? [[what, options.get(what)!]] : [])));
}

/** The address of this view with one more change; with ``now`` it is rehearsed at once. */
export function added(what: string, entry: string, now = false): string {
  const before = known();
  const entries = new Set((before[what] ?? "").split(",").filter(Boolean));
  entries.add(entry);
  return write("what-if", "", { ...before, at: read().options.get("at"), [what]: [...entries].join(","), ask: now ? "now" : null });
}

/** The address of this view, where the taint is to be written. */
export function tainting(what: "taint" | "taintDevices", target: string): string {
  return write("what-if", "", { ...known(), at: read().options.get("at"), add: `${what} ${target}` });
}

const KEPT = "dray-what-if";
let typed = "";

interface Planned { pod: string; verdict: string; node: string; devices?: { pool: string; device: string; driver: string }[]; after?: string[]; summary?: string; insteadOf?: string }
interface Plan {
  told: string; pods: Planned[]; others: Planned[]; protected: string[]; settled: boolean;
  evictions: { pod: string; node: string; why: string; findsPlace: boolean; placeThen: string; again: string }[];
  compared: [string, string, string][];
  /** Objects of kinds that nothing is rehearsed with. */
  leftOut: string[];
  /** For doing it, where that is allowed and possible; else why not. */
  ticket: string | null; does: string[]; whyNot: string;
}

export function WhatIfView() {
  const { options } = read();
  const changes = KINDS.flatMap((what) => listed(options, what).map((entry) => [what, entry] as const));
  const [manifests, setManifests] = useState(typed);
  const [answer, setAnswer] = useState<Plan | null>(null);
  const [trouble, setTrouble] = useState("");
  const [done, setDone] = useState<string[]>([]);
  const [asking, setAsking] = useState(false);
  const [over, setOver] = useState(false);
  const [begun, setBegun] = useState(0);
  const turn = useRef(0);
  typed = manifests;
  const kept = known();
  const key = JSON.stringify([kept, options.get("at")]);
  useLayoutEffect(() => sessionStorage.setItem(KEPT, JSON.stringify(kept)), [key]);

  const ask = async () => {
    const mine = ++turn.current;
    setAsking(true);
    setTrouble("");
    setDone([]);
    const at = options.get("at");
    const entries = KINDS.map((what) => [what, listed(options, what).map((entry) => (TAINTS.has(what) ? entry.split(" ", 2) : entry))]);
    try {
      const plan = await post<Plan>(`plan${at ? `?at=${at}` : ""}`, { manifests, ...Object.fromEntries(entries) });
      if (mine === turn.current) setAnswer(plan);
    } catch (error) {
      if (mine === turn.current) setTrouble((error as Error).message);
    }
    if (mine === turn.current) setAsking(false);
  };
  // An answer is of what was asked: it goes when that changes, also while it is on its way. At once: not with the next frame,
  // before which somebody may ask again.
  useLayoutEffect(() => {
    turn.current++;
    setAnswer(null);
    setAsking(false);
  }, [key, manifests]);
  const now = options.get("ask") === "now";
  useLayoutEffect(() => {
    if (!now) return;
    go(withOptions({ ask: null }), true);
    void ask();
  }, [now, key]);
  const apply = async () => {
    try {
      setDone((await post<{ done: string[] }>("apply", { ticket: answer!.ticket })).done);
      setTrouble("");
      setBegun((before) => before + 1);
    } catch (error) {
      setTrouble((error as Error).message);
    }
    setAnswer(null);
  };
  const without = (what: string, entry: string) => go(withOptions({ [what]: listed(options, what).filter((each) => each !== entry).join(",") || null }));
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
      <p class="faint">Preview a change with the real scheduler: where pods would go, which would be evicted, and what would be left. Nothing is changed.</p>
      <form id="change" onSubmit={(event) => { event.preventDefault(); void ask(); }}>
        <label>manifests to apply: paste them, or drop files here
          <textarea
            class={over ? "manifests over" : "manifests"} value={manifests} spellcheck={false} placeholder={"apiVersion: v1\nkind: Pod\n…"}
            onInput={(event) => setManifests(event.currentTarget.value)}
            onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)} onDrop={drop}
          />
        </label>
        {changes.length > 0 && (
          <ul class="changes" aria-label="changes">
            {changes.map(([what, entry]) => <li>{SAID[what]} {entry.replace(" ", " with ")}<button type="button" aria-label={`do not ${SAID[what]} ${entry}`} onClick={() => without(what, entry)}>✕</button></li>)}
          </ul>
        )}
      </form>
      <AddChange key={options.get("add") ?? ""} asked={options.get("add") ?? ""} />
      <p><button type="submit" form="change" class="main" disabled={asking || (!manifests.trim() && !changes.length)}>{asking ? "rehearsing …" : "preview"}</button></p>
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      <div role="status">
        {done.length > 0 && <p class="placed">Done: {done.join("; ")}.</p>}
        {answer && <Answer plan={answer} changes={changes} files={!!manifests.trim()} apply={apply} />}
      </div>
      <Drains turn={begun} />
    </div>
  );
}

/** One more change. ``asked`` in the address: a taint of this is to be written. */
function AddChange({ asked }: { asked: string }) {
  const [first = "", target = ""] = asked.split(" ", 2);
  const [what, setWhat] = useState(first || "drain");
  const [name, setName] = useState(target);
  const [taint, setTaint] = useState("");
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => { if (target) input.current?.focus(); }, []);
  const device = what === "taintDevices";
  const enough = (device ? !!name.trim() : !!cluster.picture?.nodes[name]) && (!TAINTS.has(what) || /^\S+:\w+$/.test(taint.trim()));
  const add = (event: SubmitEvent) => {
    event.preventDefault();
    if (!enough) return;
    go(added(what, TAINTS.has(what) ? `${name.trim()} ${taint.trim().replaceAll(",", "")}` : name, TAINTS.has(what)));
    setName("");
  };
  return (
    <form class="try" onSubmit={add} aria-label="add a change">
      <label>{device ? "devices" : "a node"}
        <input list={device ? undefined : "nodes"} value={name} onInput={(event) => setName(event.currentTarget.value)} placeholder={device ? "driver/pool/device, * for any" : ""} spellcheck={false} />
      </label>
      <datalist id="nodes">{Object.keys(cluster.picture?.nodes ?? {}).slice(0, 500).map((each) => <option value={each} />)}</datalist>
      <label>change
        <select value={what} onChange={(event) => setWhat(event.currentTarget.value)}>
          {Object.entries(WHAT_IF).map(([each, title]) => <option value={each}>{title}</option>)}<option value="taintDevices">taint devices</option>
        </select>
      </label>
      {TAINTS.has(what) && <label>taint <input ref={input} value={taint} onInput={(event) => setTaint(event.currentTarget.value)} placeholder="key=value:NoExecute" spellcheck={false} /></label>}
      <button type="submit" disabled={!enough}>add</button>
    </form>
  );
}

function Answer({ plan, changes, files, apply }: { plan: Plan; changes: (readonly [string, string])[]; files: boolean; apply: () => void }) {
  const same = plan.compared.filter(([, before, after]) => before === after);
  const quoted = (entry: string) => entry.split(" ").map((part) => (/[*?]/.test(part) ? `'${part}'` : part)).join(" ");
  const command = ["dray plan", ...(files ? ["-f FILE"] : []), ...changes.map(([what, entry]) => `${FLAGS[what]} ${quoted(entry)}`)].join(" ");
  return (
    <article class="preview" aria-label="plan">
      <p class="lead">{plan.told}</p>
      {!plan.settled && <p class="trouble">The rehearsal ended before everything had settled.</p>}
      <PodTable title="affected pods" pods={plan.pods} />
      <PodTable title="other pending pods that get a node" pods={plan.others} />
      {plan.evictions.length > 0 && (
        <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="evicted pods">
          <table>
            <thead><tr>{["evicted", "from", "moves to", "reason"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
            <tbody>{plan.evictions.slice(0, 200).map((each) => (
              <tr><th scope="row"><a href={podAddress(each.pod)}>{each.pod}</a></th><td>{each.node}</td><td>{each.placeThen || <span class="unplaced">{each.again ? "does not fit" : "not recreated"}</span>}</td><td>{each.why}</td></tr>
            ))}</tbody>
          </table>
        </div>
      )}
      {plan.protected.map((pod) => <p class="taint">{pod} is protected by a disruption budget and would stay.</p>)}
      <Compared title="before and after" rows={plan.compared.filter(([, before, after]) => before !== after)} />
      {same.length > 0 && <details><summary>{count(same.length, "value")} unchanged</summary><Compared title="unchanged values" rows={same} /></details>}
      {plan.leftOut.length > 0 && <p class="taint">Ignored, because Dray does not know these kinds: {plan.leftOut.join("; ")}.</p>}
      <p class="faint">On the command line:</p>
      <Command text={command} />
      {plan.ticket && (
        <>
          <p>Applying this would, in this order:</p>
          <ol class="steps">{plan.does.slice(0, 50).map((step) => <li>{step}</li>)}{plan.does.length > 50 && <li class="faint">and {plan.does.length - 50} more</li>}</ol>
          <p><button type="button" class="main" onClick={apply}>apply</button></p>
        </>
      )}
      {cluster.about?.changes && plan.whyNot && <p class="faint">This cannot be applied from here: {plan.whyNot}.</p>}
    </article>
  );
}

function Compared({ title, rows }: { title: string; rows: Plan["compared"] }) {
  if (!rows.length) return null;
  return (
    <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label={title}>
      <table>
        <thead><tr><td /><th scope="col">before</th><th scope="col">after</th></tr></thead>
        <tbody>{rows.map(([name, before, after]) => <tr><th scope="row">{name}</th><td>{before}</td><td>{before === after ? after : <b>{after}</b>}</td></tr>)}</tbody>
      </table>
    </div>
  );
}

function PodTable({ title, pods }: { title: string; pods: Planned[] }) {
  if (!pods.length) return null;
  const placed = pods.some((pod) => pod.node), after = pods.some((pod) => pod.after?.length), refused = pods.some((pod) => pod.summary);
  return (
    <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label={title}>
      <table>
        <caption class="unseen">{title}</caption>
        <thead><tr>{["pod", "verdict", ...(placed ? ["node", "devices"] : []), ...(after ? ["evicts"] : []), ...(refused ? ["reason"] : [])].map((name) => <th scope="col">{name}</th>)}</tr></thead>
        <tbody>
          {pods.slice(0, 200).map((pod) => (
            <tr>
              <th scope="row">{pod.pod}{pod.insteadOf && <div class="faint">{pod.insteadOf === pod.pod ? "recreated" : `instead of ${pod.insteadOf}`}</div>}</th>
              <td class={pod.verdict === "placed" ? "placed" : "unplaced"}>{pod.verdict}</td>
              {placed && <td>{pod.node && <a href={onMap("node", pod.node)}>{pod.node}</a>}</td>}
              {placed && <td>{(pod.devices ?? []).map((device) => <div><a href={onMap("device", `${device.driver}/${device.pool}/${device.device}`)}>{device.pool}/{device.device}</a></div>)}</td>}
              {after && <td>{(pod.after ?? []).join(", ")}</td>}
              {refused && <td class="why">{pod.summary}</td>}
            </tr>
          ))}
        </tbody>
      </table>
      {pods.length > 200 && <p class="faint">and {pods.length - 200} more</p>}
    </div>
  );
}
