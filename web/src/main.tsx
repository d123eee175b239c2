// The page: header, views by address, and what is shown while there is nothing to show.

import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { link, read } from "./address";
import { adoptToken, hasToken, setToken } from "./api";
import { cluster } from "./cluster";
import { HealthBadge, HealthView } from "./health";
import { MapView } from "./mapview";
import { chosenTheme, setTheme, useCluster, type Theme } from "./parts";
import { PodView } from "./podview";
import { Player } from "./player";
import { QueuesView } from "./queues";
import { TaintsView } from "./taints";
import { WaitingView } from "./waiting";
import { WhatIfView } from "./whatif";

const VIEWS: [string, string][] = [["map", "Map"], ["waiting", "Waiting"], ["what-if", "What if"], ["queues", "Queues"], ["taints", "Taints"], ["health", "Health"]];

function Page() {
  const [address, set] = useState(read);
  const { link: state, trouble } = useCluster();
  useLayoutEffect(() => {
    const change = () => set(read());
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  useEffect(() => { document.title = `${address.of || VIEWS.find(([view]) => view === address.view)?.[1] || "Dray"} · Dray`; });
  if (state === "refused" || !hasToken()) return <Login trouble={trouble} />;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>skip to content</a>
      <Header view={address.view} />
      <Notices />
      <Player />
      <main id="main" tabIndex={0}>
        <View view={address.view} of={address.of} />
      </main>
    </>
  );
}

function View({ view, of }: { view: string; of: string }) {
  switch (view) {
    case "waiting": return <WaitingView />;
    case "what-if": return <WhatIfView />;
    case "queues": return <QueuesView />;
    case "taints": return <TaintsView target={of} />;
    case "health": return <HealthView />;
    case "pod": return <PodView name={of} />;
    case "map": return <MapView />;
    default: return <div class="page"><h1>Page not found</h1><p><a href="#/map">go to the map</a></p></div>;
  }
}

function Header({ view }: { view: string }) {
  const { about, picture, link: state } = useCluster();
  const nav = useRef<HTMLElement>(null);
  // Where there is no room for all of them they scroll sideways.
  useEffect(() => nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [view]);
  const says: Record<string, string> = { connecting: "connecting", live: "live", lost: "connection lost", still: about?.span?.growing ? "being simulated" : about?.mode === "run" ? "recorded run" : "from files" };
  return (
    <header class="top">
      <span class="brand"><svg viewBox="0 0 16 16" aria-hidden="true"><rect x="1" y="1" width="6" height="6" /><rect x="9" y="1" width="6" height="6" /><rect x="1" y="9" width="6" height="6" /><rect class="other" x="9" y="9" width="6" height="6" /></svg>Dray</span>
      <nav aria-label="views" ref={nav}>
        {VIEWS.map(([name, title]) => (
          <a href={link(name)} aria-current={view === name ? "page" : undefined}>
            {title}{name === "waiting" && picture ? <span class={picture.waiting ? "badge some" : "badge"}>{picture.waiting}</span> : null}
            {name === "health" && picture ? <HealthBadge /> : null}
          </a>
        ))}
      </nav>
      <span class="source" title={about?.title}>{about?.title}</span>
      <span class={`link ${state}`} role="status"><span aria-hidden="true">●</span> {says[state] ?? ""}</span>
      <ThemeChoice />
    </header>
  );
}

function ThemeChoice() {
  const [theme, set] = useState(chosenTheme);
  const choose = (next: Theme) => { setTheme(next); set(next); };
  return (
    <label class="theme"><span class="unseen">colours</span>
      <select value={theme} onChange={(event) => choose(event.currentTarget.value as Theme)}>
        <option value="auto">auto</option><option value="light">light</option><option value="dark">dark</option>
      </select>
    </label>
  );
}

function Notices() {
  const { about, link: state, trouble } = useCluster();
  const notices = [...(about?.notices ?? []), ...(state === "lost" ? [`${trouble}; this may be out of date, reconnecting`] : [])];
  if (!notices.length) return null;
  return <div class="notices" role="status">{notices.map((notice) => <p>{notice}</p>)}</div>;
}

function Login({ trouble }: { trouble: string }) {
  const enter = (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement).get("token");
    setToken(String(given));
    location.reload();
  };
  return (
    <main class="page login">
      <h1>Dray</h1>
      <p>Enter the token of this page. It is in the address that was printed at startup, after <code>#token=</code>.</p>
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      <form onSubmit={enter}>
        <label>token or address <input name="token" type="password" autocomplete="off" required autofocus /></label>
        <button type="submit">log in</button>
      </form>
    </main>
  );
}

adoptToken();
document.documentElement.dataset.theme = chosenTheme();
addEventListener("hashchange", () => {
  if (/token=/.test(location.hash)) { adoptToken(); location.reload(); }
});
render(<Page />, document.getElementById("page")!);
if (hasToken()) void cluster.start();
