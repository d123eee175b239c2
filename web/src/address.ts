// Every view has an address: #/map?group=rack, #/pod/default/train. Going back and forth works, and addresses can be shared.

export interface Address {
  view: string;
  /** What the view is about, after its name. */
  of: string;
  options: URLSearchParams;
}

export function read(hash = location.hash): Address {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", ...rest] = path.split("/").map(decodeURIComponent);
  return { view: view || "map", of: rest.join("/"), options: new URLSearchParams(query) };
}

export function write(view: string, of = "", options: Record<string, string | number | undefined | null> = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(options)) if (value !== undefined && value !== null && value !== "") query.set(key, String(value));
  const path = [view, ...(of ? of.split("/") : [])].map(encodeURIComponent).join("/");
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

/** The present address with some options changed; null takes one away. */
export function withOptions(changes: Record<string, string | number | null>): string {
  const { view, of, options } = read();
  return write(view, of, { ...Object.fromEntries(options), ...changes });
}

export function go(address: string, replace = false): void {
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = address;
}

/** In a recorded run the time stays with you from view to view. */
export function link(view: string, of = ""): string {
  return write(view, of, { at: read().options.get("at") });
}

export const podAddress = (key: string) => link("pod", key);
export const onMap = (what: "node" | "device", name: string) =>
  write("map", "", { ...(read().view === "map" ? Object.fromEntries(read().options) : {}), at: read().options.get("at"), on: `${what}:${name}` });
