// The picture of the cluster as the server tells it, kept current, and who wants to know.

import { read } from "./address";
import { follow, get, Refused } from "./api";

/** A device: name, state, percent used, zone, PCI root, counter set, classes, pods, mark. */
export type Cell = [string, number, number, number, string, string, number[], string[], number];
export const NAME = 0, STATE = 1, USED = 2, ZONE = 3, ROOT = 4, WITHIN = 5, CLASSES = 6, PODS = 7, MARK = 8;
export const ATTACHING = 1, RESTING = 2;
/** A counter of a counter set: set, counter, used, total, percent. */
export type Bar = [string, string, string, string, number];

export interface Pool { driver: string; pool: string; node: string; devices: Cell[]; bars: Bar[] }
export interface NodeInfo { name: string; ready: boolean; cordoned: boolean; labels: Record<string, string> }
export interface Picture {
  number: number;
  at: number;
  states: string[];
  classes: string[];
  pools: Record<string, Pool>;
  nodes: Record<string, NodeInfo>;
  waiting: number;
  pods: number;
}
interface Changed extends Pick<Picture, "number" | "at" | "waiting" | "pods"> {
  pools?: Record<string, Pool | null>;
  nodes?: Record<string, NodeInfo | null>;
}
export interface About {
  title: string;
  mode: "live" | "snapshot" | "run";
  changes: boolean;
  version: string;
  notices: string[];
  /** Of a recorded run: when it began, how long it lasted (has lasted, while it grows), when in it something changed. */
  span: { start: number; length: number; marks: number[]; growing: boolean } | null;
}

export type Link = "connecting" | "live" | "lost" | "still" | "refused";

export class Cluster {
  about: About | null = null;
  picture: Picture | null = null;
  link: Link = "connecting";
  trouble = "";
  /** Grows whenever anything above changes. */
  version = 0;
  private listeners = new Set<() => void>();
  private asked = 0;

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private tell(): void {
    this.version++;
    for (const listener of this.listeners) listener();
  }

  async start(): Promise<void> {
    for (let pause = 500; ; pause = Math.min(pause * 2, 10_000)) {
      try {
        await this.once();
        if (this.about!.mode !== "live" && !this.about!.span?.growing) return;
        pause = 500;
      } catch (error) {
        if (error instanceof Refused && error.status === 401) return this.set("refused", error.message);
        this.set("lost", error instanceof Refused ? error.message : "the server does not answer");
      }
      await new Promise((resume) => setTimeout(resume, pause));
    }
  }

  private async once(): Promise<void> {
    // An address with a time in it is of a run, and the map of its end is not wanted. All others want it as soon as can be.
    const early = read().options.has("at") ? null : get<Picture>("map");
    early?.catch(() => {}); // told below, or by the question beside it
    this.about = await get<About>("about");
    if (this.about.mode === "run") return this.set("still", "");
    this.picture = await (early ?? get<Picture>("map"));
    if (this.about.mode !== "live") return this.set("still", "");
    this.set("live", "");
    const ended = new AbortController();
    try {
      await follow(`stream?since=${this.picture.number}`, (name, data) => this.told(name, data, ended), ended.signal);
    } catch (error) {
      if (!ended.signal.aborted) throw error;
      return;
    }
    throw new Error("the stream ended");
  }

  private told(name: string, data: unknown, ended: AbortController): void {
    if (name === "reset") ended.abort();
    if (name !== "change" || !this.picture) return;
    const change = data as Changed;
    const { pools, nodes } = this.picture;
    merge(pools, change.pools);
    merge(nodes, change.nodes);
    const { number, at, waiting, pods } = change;
    this.picture = { ...this.picture, number, at, waiting, pods, pools, nodes };
    this.tell();
  }

  /** The picture of a recorded run at a time. Of several that are asked for at once the last is shown. */
  async seek(at: number): Promise<void> {
    const asked = ++this.asked;
    const picture = await get<Picture>("map", { at });
    if (asked !== this.asked) return;
    this.picture = picture;
    this.tell();
  }

  private set(link: Link, trouble: string): void {
    this.link = link;
    this.trouble = trouble;
    this.tell();
  }
}

function merge<T>(into: Record<string, T>, changes: Record<string, T | null> | undefined): void {
  for (const [key, part] of Object.entries(changes ?? {})) {
    if (part === null) delete into[key];
    else into[key] = part;
  }
}

export const cluster = new Cluster();
