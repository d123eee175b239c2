// What to show of the map: "class=gpu free>=4 rack=r1". Terms about devices narrow the devices, counts are of those that remain.

import { CLASSES, NAME, PODS, ROOT, STATE, ZONE, type Cell, type NodeInfo, type Picture, type Pool } from "./cluster";

type Test<T> = (value: T) => boolean;
export interface Filter {
  /** Why the text makes no sense, or nothing. */
  error: string;
  empty: boolean;
  node: Test<{ name: string; labels: Record<string, string>; info: NodeInfo | null }>;
  device: Test<{ cell: Cell; pool: Pool }>;
  narrows: boolean;
  counts: Test<Record<string, number>>;
}

const TERM = /^(-?)([^=<>!]+?)(!=|>=|<=|=|>|<)(.*)$/;
const DEVICE_KEYS = ["class", "state", "driver", "pool", "device", "pod", "zone", "root"];

export function compile(text: string, picture: Picture): Filter {
  const filter: Filter = { error: "", empty: !text.trim(), node: () => true, device: () => true, narrows: false, counts: () => true };
  for (const word of text.match(/(?:"[^"]*"|\S)+/g) ?? []) {
    const said = word.replaceAll('"', "");
    const found = TERM.exec(said);
    const problem = found ? term(filter, picture, found[2]!, found[3]!, found[4]!) : named(filter, said);
    if (problem) filter.error = problem;
  }
  return filter;
}

function named(filter: Filter, word: string): string {
  const before = filter.node;
  const low = word.toLowerCase();
  filter.node = (node) => before(node) && node.name.toLowerCase().includes(low);
  return "";
}

function term(filter: Filter, picture: Picture, key: string, sign: string, value: string): string {
  if (picture.states.includes(key) || key === "devices" || key === "used") return counted(filter, key, sign, value);
  if (sign !== "=" && sign !== "!=") return `${key}: only counts can be compared with ${sign}: ${picture.states.join(", ")}, devices, used`;
  const matches = glob(value), wanted = sign === "=";
  if (DEVICE_KEYS.includes(key)) {
    const before = filter.device, of = property(picture, key);
    filter.device = (each) => before(each) && of(each).some(matches) === wanted;
    filter.narrows = true;
    return "";
  }
  const before = filter.node;
  if (key === "node") filter.node = (node) => before(node) && matches(node.name) === wanted;
  else if (key === "ready" || key === "cordoned") filter.node = (node) => before(node) && matches(node.info?.[key] ? "yes" : "no") === wanted;
  else {
    const label = key.startsWith("label.") ? key.slice(6) : key;
    if (!knownLabel(picture, label)) return `unknown key ${key}: neither a label nor one of node, ready, cordoned, ${DEVICE_KEYS.join(", ")}`;
    filter.node = (node) => before(node) && labelled(node.labels, label).some(matches) === wanted;
  }
  return "";
}

function counted(filter: Filter, key: string, sign: string, value: string): string {
  const number = Number(value);
  if (!value || Number.isNaN(number)) return `${key}${sign}${value}: ${value || "nothing"} is not a number`;
  const before = filter.counts;
  const compare: Record<string, (a: number) => boolean> = {
    "=": (a) => a === number, "!=": (a) => a !== number, ">": (a) => a > number,
    "<": (a) => a < number, ">=": (a) => a >= number, "<=": (a) => a <= number,
  };
  filter.counts = (counts) => before(counts) && compare[sign]!(counts[key] ?? 0);
  return "";
}

function property(picture: Picture, key: string): (each: { cell: Cell; pool: Pool }) => string[] {
  switch (key) {
    case "class": return ({ cell }) => cell[CLASSES].map((number) => picture.classes[number]!);
    case "state": return ({ cell }) => [picture.states[cell[STATE]]!];
    case "driver": return ({ pool }) => [pool.driver];
    case "pool": return ({ pool }) => [pool.pool];
    case "device": return ({ cell }) => [cell[NAME]];
    case "zone": return ({ cell }) => [String(cell[ZONE])];
    case "root": return ({ cell }) => [cell[ROOT]];
    default: return ({ cell }) => cell[PODS].flatMap((pod) => [pod, pod.slice(pod.indexOf("/") + 1)]);
  }
}

/** A name, its beginning before a dot (class=gpu for gpu.example.com), or with * for anything. */
function glob(pattern: string): Test<string> {
  if (!pattern.includes("*")) return (value) => value === pattern || value.startsWith(`${pattern}.`);
  const parts = pattern.split("*");
  return (value) => {
    if (!value.startsWith(parts[0]!) || !value.endsWith(parts.at(-1)!)) return false;
    let from = 0;
    for (const part of parts) {
      const at = value.indexOf(part, from);
      if (at < 0) return false;
      from = at + part.length;
    }
    return true;
  };
}

function labelled(labels: Record<string, string>, key: string): string[] {
  const exact = labels[key];
  if (exact !== undefined) return [exact];
  return Object.keys(labels).filter((name) => name.endsWith(`/${key}`)).map((name) => labels[name]!);
}

function knownLabel(picture: Picture, key: string): boolean {
  return Object.values(picture.nodes).some((node) => labelled(node.labels, key).length > 0);
}
