// Taints on devices: the rules there are, what one more would do, and, where it is allowed, doing it.

import { useLayoutEffect, useState } from "preact/hooks";
import { onMap, podAddress, read } from "./address";
import { post, remove } from "./api";
import { Command, labelled, Shown, useAnswer, useCluster } from "./parts";

interface Rule {
  rule: string; taint: string; effect: string; about: string; since: string | null; expires: string | null;
  published: number; allocated: number; pods: number; progress: string[];
}
interface Leaves { pod: string; node: string; devices: string[]; at: string; findsPlace: boolean | null; placeThen: string }
interface Preview {
  told: string[]; does: string; ticket: string;
  blast: { pods: number; asked: number; owners: { namespace: string; owner: string; pods: Leaves[] }[] };
}

export function TaintsView({ target }: { target: string }) {
  const { about } = useCluster();
  const rules = useAnswer<Rule[]>("taints", { at: read().options.get("at") });
  return (
    <div class="page">
      <h1>Taints</h1>
      <Shown answer={rules}>{(found) => <Rules rules={found} changes={!!about?.changes} />}</Shown>
      <Try target={target} changes={!!about?.changes} />
    </div>
  );
}

function Rules({ rules, changes }: { rules: Rule[]; changes: boolean }) {
  const [trouble, set] = useState("");
  const end = (rule: string) => remove("taints", { rule }).then(() => set(""), (error: Error) => set(error.message));
  if (!rules.length) return <p class="faint">No rules taint devices.</p>;
  return (
    <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="rules">
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      <table>
        <thead><tr>
          <th scope="col">rule</th><th scope="col">taint</th><th scope="col" class="number">devices</th><th scope="col" class="number">in use</th>
          <th scope="col" class="number">pods to evict</th><th scope="col">progress</th>{changes && <td />}
        </tr></thead>
        <tbody>
          {rules.map((rule) => (
            <tr>
              <th scope="row">{rule.rule}<div class="faint">{rule.about}</div></th>
              <td class="taint">{rule.taint}{rule.expires && <div class="faint">until {rule.expires}</div>}</td>
              <td class="number">{rule.published}</td><td class="number">{rule.allocated}</td>
              <td class="number">{rule.effect === "NoExecute" ? rule.pods : <span class="faint">none{rule.pods ? ` (${rule.pods} with NoExecute)` : ""}</span>}</td>
              <td>{rule.progress.join("; ")}</td>
              {changes && <td><button type="button" onClick={() => end(rule.rule)} aria-label={`remove rule ${rule.rule}`}>remove</button></td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Try({ target, changes }: { target: string; changes: boolean }) {
  const [wanted, setWanted] = useState({ target, taint: "example.com/maintenance:NoExecute" });
  const [preview, setPreview] = useState<Preview | null>(null);
  const [said, say] = useState("");
  const [asking, setAsking] = useState(false);
  useLayoutEffect(() => { setWanted((before) => ({ ...before, target })); setPreview(null); }, [target]);
  const ask = async (event: SubmitEvent) => {
    event.preventDefault();
    setAsking(true);
    say("");
    setPreview(null);
    const at = read().options.get("at");
    try {
      setPreview(await post<Preview>(`taints/preview${at ? `?at=${at}` : ""}`, wanted));
    } catch (error) {
      say((error as Error).message);
    }
    setAsking(false);
  };
  const apply = async () => {
    try {
      const { done } = await post<{ done: string[] }>("apply", { ticket: preview!.ticket });
      say(`done: ${done.join("; ")}`);
    } catch (error) {
      say((error as Error).message);
    }
    setPreview(null);
  };
  const field = (name: "target" | "taint") => (event: { currentTarget: HTMLInputElement }) => {
    setWanted({ ...wanted, [name]: event.currentTarget.value });
    setPreview(null);
  };
  return (
    <section>
      <h2>What would a taint do?</h2>
      <form class="try" onSubmit={ask}>
        <label>devices <input value={wanted.target} onInput={field("target")} placeholder="driver/pool/device, * for any" required spellcheck={false} /></label>
        <label>taint <input value={wanted.taint} onInput={field("taint")} placeholder="key=value:NoExecute" required spellcheck={false} /></label>
        <button type="submit" class="main" disabled={asking}>{asking ? "loading …" : "preview"}</button>
      </form>
      <p role="status">{said}</p>
      {preview && <Previewed preview={preview} wanted={wanted} changes={changes} apply={apply} />}
    </section>
  );
}

function Previewed({ preview, wanted, changes, apply }: { preview: Preview; wanted: { target: string; taint: string }; changes: boolean; apply: () => void }) {
  const quoted = wanted.target.includes("*") ? `'${wanted.target}'` : wanted.target;
  return (
    <article class="preview" aria-label="preview">
      {preview.told.map((line) => <p>{line}</p>)}
      {preview.blast.owners.length > 0 && (
        <div class="scroll" ref={labelled} tabIndex={0} role="region" aria-label="pods that would be evicted">
          <table>
            <thead><tr>{["pod", "owner", "node", "devices", "finds another place"].map((title) => <th scope="col">{title}</th>)}</tr></thead>
            <tbody>
              {preview.blast.owners.flatMap((owner) => owner.pods.slice(0, 100).map((pod) => (
                <tr>
                  <th scope="row"><a href={podAddress(pod.pod)}>{pod.pod}</a></th>
                  <td>{owner.owner || <span class="taint">none: not recreated</span>}</td>
                  <td><a href={onMap("node", pod.node)}>{pod.node}</a></td>
                  <td>{pod.devices.map((device) => <div><a href={onMap("device", device)}>{device}</a></div>)}</td>
                  <td>{pod.findsPlace === null ? (owner.owner ? "not checked" : "") : pod.findsPlace ? pod.placeThen : <span class="trouble">none</span>}</td>
                </tr>
              )))}
            </tbody>
          </table>
        </div>
      )}
      <p class="faint">A preview changes nothing. On the command line:</p>
      <Command text={`dray taint ${quoted} ${wanted.taint}`} />
      {changes && <p><button type="button" class="main" onClick={apply}>apply: this {preview.does}</button></p>}
      {!changes && preview.blast.pods > 0 && <p class="faint">This page is read-only, so no pods are evicted.</p>}
    </article>
  );
}
