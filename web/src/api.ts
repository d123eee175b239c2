// Questions to the server. The token comes in the address behind the #, which browsers send to nobody, and stays in this tab.

const KEY = "dray-token";

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Takes the token out of the address, so that what is copied from there does not have it. */
export function adoptToken(): void {
  const found = /^#(?:.*&)?token=([^&]+)/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(KEY, decodeURIComponent(found[1]!));
  const rest = location.hash.replace(/[#&]?token=[^&]+/, "");
  history.replaceState(null, "", `${location.pathname}${rest.startsWith("#") ? rest : "#/map"}`);
}

export function setToken(token: string): void {
  sessionStorage.setItem(KEY, token.includes("token=") ? token.replace(/^.*token=/, "") : token.trim());
}

export function hasToken(): boolean {
  return !!sessionStorage.getItem(KEY);
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  const headers = { ...init.headers, Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  const answer = await fetch(`api/${path}`, { ...init, headers, cache: "no-store", credentials: "omit" });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, typeof said.error === "string" ? said.error : `the server answered ${answer.status}`);
}

export type Asked = Record<string, string | number | undefined | null>;

export async function get<T>(path: string, asked: Asked = {}, signal?: AbortSignal): Promise<T> {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(asked)) if (value !== undefined && value !== null) query.set(key, String(value));
  const answer = await ask(query.size ? `${path}?${query}` : path, { signal });
  return (await answer.json()) as T;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  return (await (await ask(path, { method: "POST", body: JSON.stringify(body), headers })).json()) as T;
}

export async function remove(path: string, asked: Asked): Promise<void> {
  const query = new URLSearchParams(asked as Record<string, string>);
  await ask(`${path}?${query}`, { method: "DELETE" });
}

/** Follows a stream of events until it ends. EventSource cannot send a header, and the token goes nowhere else. */
export async function follow(path: string, told: (name: string, data: unknown) => void, signal: AbortSignal): Promise<void> {
  const answer = await ask(path, { signal });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const messages = text.split("\n\n");
    text = messages.pop()!;
    for (const message of messages) {
      const name = /^event: (.*)$/m.exec(message)?.[1] ?? "message";
      const data = /^data: (.*)$/m.exec(message)?.[1];
      if (data) told(name, JSON.parse(data));
    }
  }
}
