// What needs attention, worst first, each with what to do: a button for those who may change things, else the command to type.
import { act, ask, endOf, feed, keyOf, linkState, lost, on, switchState } from "./feed.js";
import { command, h, linkTo, plain, route, say, put, sync, tell, word } from "./dom.js";
import { eventRow } from "./events.js";
import { curve } from "./link.js";
import { bits, count, natural, now, plural, rate, short, time } from "./units.js";

const RANK = { bad: 0, warning: 1, info: 2 };
export const SIGNS = { bad: "✕", warning: "!", info: "i", good: "✓" };
const BEHIND_MS = 4000;
const SHOWN = 6;
const SHOWN_HOSTS = 50; // as many as the controller tells of

/** Everything worth a word about a network. Pure, but for the clock it is given. */
export function concerns(network, behind, now_ms) {
  const all = [];
  const add = (level, kind, key, title, detail, more) => all.push({ level, kind, key: `${kind} ${key}`, title, detail, ...more });
  for (const sentence of network.troubles) add("bad", "trouble", sentence, short(plain(sentence), 400), "");
  const away = new Set(network.switches.filter((each) => switchState(each) === "away").map((each) => each.name));
  // A switch that stopped takes its links with it: that is one alarm, and they are named in it.
  const with_it = new Map();
  const folded = (link) => linkState(link) === "cut" && (away.has(link.a.switch) || away.has(link.b.switch));
  for (const link of network.links.filter(folded)) {
    for (const end of [link.a, link.b]) if (away.has(end.switch)) with_it.set(end.switch, [...(with_it.get(end.switch) ?? []), link]);
  }
  for (const each of [...network.switches].sort((a, b) => natural(a.name, b.name))) {
    const href = route("switch", { name: each.name });
    const name = short(each.name);
    const state = switchState(each);
    if (state === "stuck") add("bad", "stuck", each.name, `${name} cannot follow`, short(each.cannot_follow, 400), { href });
    else if (state === "away") add("bad", "away", each.name, `${name} is not connected`, with_it.has(each.name) ? "It has stopped, or cannot be reached. Check that it runs, and that its cables are plugged in." : "It keeps forwarding with the tables that it has. Check that it runs, and can reach this controller.", { href, under: with_it.get(each.name) });
    else if (state === "behind" && now_ms - (behind.get(each.name) ?? now_ms) >= BEHIND_MS) {
      add("warning", "behind", each.name, `${name} is not in step`, `${count(each.acknowledged_messages)} of ${count(each.sent_messages)} messages acknowledged.`, { href });
    } else if (state === "drained") {
      add("info", "drained", each.name, `${name} is drained`, "No path of other switches leads through it.", { href, button: "Undrain", what: { do: "switch.undrain", name: each.name }, command: `fibula switch undrain ${word(each.name)}` });
    }
  }
  for (const link of network.links) {
    const state = linkState(link);
    const ends = `${short(endOf(link.a))} – ${short(endOf(link.b))}`;
    if (folded(link)) continue;
    const more = { href: route("link", { a: link.a.switch, port: link.a.port }) };
    const undrain = { button: "Take back", what: { do: "link.undrain", end: link.a }, command: `fibula link undrain ${word(endOf(link.a))}` };
    const key = `${endOf(link.a)} ${endOf(link.b)}`;
    if (state === "cut") add("bad", "cut", key, `${ends} is cut`, "It carries no frames. Frames take other paths where possible. Check the cable and both ports.", more);
    else if (state === "draining") add("info", "draining", key, `${ends} is being drained`, "Paths leave it step by step.", { ...more, ...undrain });
    else if (state === "down") add("info", "down", key, `${ends} is taken down`, "An operator took it out of use.", { ...more, ...undrain });
  }
  for (const each of network.pending) {
    add("warning", "pending", each.name, `${short(each.name)} waits to be accepted`, `Version ${short(each.version, 20)}, from ${short(each.address, 60)}`, {
      since: each.first_ms, ask: "It receives tables, and paths may lead through it once it has links.", button: "Accept", what: { do: "switch.accept", name: each.name }, command: `fibula switch accept ${word(each.name)}`,
    });
  }
  if (network.found.length > 0) {
    const shown = network.found.slice(0, 4).map((link) => `${short(endOf(link.a))} – ${short(endOf(link.b))}`).join(", ");
    add("warning", "found", "", network.found.length === 1 ? "An undeclared cable was found" : `${count(network.found.length)} undeclared cables were found`,
      network.found.length > 4 ? `${shown} and ${count(network.found.length - 4)} more` : shown, { ask: `They become links, and paths lead over them: ${shown}${network.found.length > 4 ? " and others" : ""}.`, button: "Accept", what: { do: "links.accept" }, command: "fibula link accept" });
  }
  // A port that only reports may be meant to: hosts that wait are told, and not counted as urgent.
  for (const each of network.waiting) {
    const address = each.ip ? `, address ${short(each.ip, 60)}` : "";
    const tenant = each.tenant ? `, tenant ${each.tenant}` : "";
    add("info", "host", each.name, `${short(each.name)} waits to be accepted`, `At ${short(endOf(each.at))}${address}${tenant}: ${short(each.why, 200)}`, {
      href: route("switch", { name: each.at.switch }), since: each.first_ms, ask: `It becomes a name at ${short(endOf(each.at))}${address}, and its host may send and be reached.`,
      button: "Accept", what: { do: "host.accept", name: each.name }, command: `fibula host accept ${word(each.name)}`,
    });
  }
  const rest = (network.n_waiting ?? 0) - network.waiting.length;
  if (rest > 0) add("info", "hosts", "", `${count(rest)} more ${rest === 1 ? "host waits" : "hosts wait"} to be accepted`, "`fibula host seen` lists them all.");
  return all.sort((a, b) => RANK[a.level] - RANK[b.level]);
}

const GROUPS = { trouble: "more troubles", stuck: "more switches cannot follow", away: "more switches are not connected", behind: "more switches are not in step", drained: "more switches are drained", cut: "more links are cut", draining: "more links are being drained", down: "more links are taken down", pending: "more switches wait", host: "more hosts wait" };

const most = (kind) => (kind === "host" ? SHOWN_HOSTS : SHOWN);

/** So many of a kind, and one line for the rest. */
function grouped(all) {
  const seen = new Map();
  const out = [];
  for (const each of all) {
    const n = (seen.get(each.kind) ?? 0) + 1;
    seen.set(each.kind, n);
    if (n <= most(each.kind)) out.push(each);
  }
  for (const [kind, n] of seen) {
    if (n <= most(kind)) continue;
    const last = out.findLastIndex((each) => each.kind === kind);
    out.splice(last + 1, 0, { level: out[last].level, kind, key: `${kind} rest`, title: `${count(n - most(kind))} ${GROUPS[kind]}`, detail: "", href: route("inventory", { only: "attention" }) });
  }
  return out;
}

export function toast(text, level = "good") {
  const node = h("p", { class: `toast ${level}` }, h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[level]), plain(text));
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), 8000);
}

/** Asks before something is done to the network. */
function confirm(title, detail) {
  return new Promise((settle) => {
    const yes = h("button", { type: "submit", class: "main", value: "yes" }, title);
    const box = h("dialog", { "aria-label": title }, h("form", { method: "dialog" }, h("h2", null, `${title}?`), h("p", null, detail), h("div", { class: "row" }, yes, h("button", { type: "submit", value: "no", class: "plain" }, "Cancel"))));
    box.addEventListener("close", () => { box.remove(); settle(box.returnValue === "yes"); });
    document.body.append(box);
    box.showModal();
    yes.focus();
  });
}

/** The button of an action, or its command. `what`: the body of /ui/act; `text` says on the button what happens to whom. */
export function control(label, title, detail, what, typed) {
  if (!feed.network?.may_change) return command(typed);
  const button = h("button", { type: "button", class: "small" }, label);
  put(button, "aria-label", title);
  button.addEventListener("click", async () => {
    if (!(await confirm(title, detail))) return;
    button.disabled = true;
    try { toast(await act(what)); } catch (error) { toast(error.status ? error.message : "The controller cannot be reached; as far as is known, nothing was changed.", "bad"); }
    button.disabled = false;
  });
  return button;
}

function card(each) {
  const detail = h("p", { class: "detail" });
  const since = each.since ? h("span", { class: "since" }, "first seen ", time(each.since)) : null;
  const controls = each.what ? control(each.button, `${each.button} ${each.kind === "found" ? "all found cables" : each.title.replace(/ (waits to be accepted|is drained|is being drained|is taken down)$/, "")}`, each.ask ?? each.detail, each.what, each.command) : null;
  const under = h("ul", { class: "under" });
  const fold = each.under ? h("details", { class: "fold" }, h("summary", null), under) : null;
  const node = h("li", { class: `card ${each.level}`, "data-kind": each.kind }, h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[each.level]),
    h("div", null, h("p", { class: "title" }, each.href ? h("a", { href: each.href }, each.title) : each.title), detail, fold, since), controls && h("div", { class: "act" }, controls));
  return { node, detail, fold, under };
}

function attentionList() {
  const heading = h("h2", null, "Needs attention");
  const tally = h("span", { class: "tally" });
  const calm = h("p", { class: "calm" }, h("span", { class: "sign good", "aria-hidden": "true" }, "✓"), h("span"));
  const list = h("ul", { class: "cards" });
  const node = h("section", { "aria-label": "Needs attention", id: "attention" }, h("div", { class: "head" }, heading, tally), calm, list);
  const update = () => {
    const { network, behind } = feed;
    const all = concerns(network, behind, Date.now());
    const urgent = all.filter((each) => each.level !== "info").length;
    say(tally, urgent > 0 ? count(urgent) : "");
    put(tally, "aria-label", urgent > 0 ? `${count(urgent)} urgent` : null);
    calm.hidden = urgent > 0;
    const carrying = network.links.filter((link) => linkState(link) === "up").length;
    say(calm.lastChild, network.switches.length === 0 ? "Nothing is wrong, and the network is still empty." : `Nothing is wrong. ${plural(network.switches.length, "switch", "switches")} in step, ${plural(carrying, "link")} carrying frames.`);
    sync(list, grouped(all), (each) => `${each.key} ${network.may_change} ${each.title} ${Boolean(each.under)}`, card, (row, each) => {
      tell(row.detail, each.detail);
      row.detail.hidden = !each.detail;
      if (!row.fold) return;
      say(row.fold.firstChild, `${plural(each.under.length, "link")} of it ${each.under.length === 1 ? "is" : "are"} cut`);
      sync(row.under, each.under, keyOf, (link) => ({ node: h("li", null, linkTo("link", { a: link.a.switch, port: link.a.port }, `${short(endOf(link.a))} – ${short(endOf(link.b))}`)) }));
    });
  };
  return { node, update };
}

/** The first view: what needs attention, the busiest links, the last events. */
export function networkView(panel) {
  const attention = attentionList();
  const busy = h("ul", { class: "bars" });
  const drops = h("ul", { class: "bars" });
  const busySection = h("section", null, h("h2", null, "Busiest links"), busy);
  const dropSection = h("section", null, h("h2", null, "Most drops"), drops);
  const last = h("ul", { class: "events brief" });
  const none = h("p", { class: "note" }, "Nothing has happened since the controller started.");
  const traffic = curve("traffic that entered the network", (signal) => ask("/ui/history", {}, signal));
  const trafficSection = h("section", null, h("h2", null, "Traffic in the last hour"), traffic.node);
  panel.append(h("h1", { class: "hidden" }, "Network"), attention.node, trafficSection, busySection, dropSection, h("section", null, h("div", { class: "head" }, h("h2", null, "Last events"), linkTo("events", {}, "All events")), none, last));
  const bar = (href) => {
    const name = h("a", { href }); const value = h("span", { class: "value" }); const fill = h("span", { class: "fill" });
    return { node: h("li", null, name, value, h("span", { class: "track", "aria-hidden": "true" }, fill)), name, value, fill };
  };
  const draw = () => {
    const { network } = feed;
    attention.update();
    const load = (link) => Math.max(...link.bytes_s);
    const busiest = network.links.filter((link) => link.bytes_s && load(link) > 0).sort((a, b) => load(b) - load(a)).slice(0, 5);
    busySection.hidden = busiest.length === 0;
    sync(busy, busiest, (link) => endOf(link.a), (link) => bar(route("link", { a: link.a.switch, port: link.a.port })), (row, link) => {
      say(row.name, `${short(endOf(link.a), 24)} – ${short(endOf(link.b), 24)}`); say(row.value, bits(load(link)));
      row.fill.style.width = `${(100 * load(link)) / load(busiest[0])}%`;
    });
    const dropping = network.switches.filter((each) => lost(each.counters) > 0).sort((a, b) => lost(b.counters) - lost(a.counters)).slice(0, 3);
    dropSection.hidden = dropping.length === 0;
    sync(drops, dropping, (each) => each.name, (each) => bar(route("switch", { name: each.name })), (row, each) => {
      say(row.name, short(each.name, 40)); say(row.value, `${rate(lost(each.counters))} frames/s`);
      row.fill.style.width = `${(100 * lost(each.counters)) / lost(dropping[0].counters)}%`;
    });
  };
  const told = () => {
    const shown = feed.events.slice(-8).reverse();
    none.hidden = shown.length > 0;
    sync(last, shown, (event) => String(event.key), eventRow);
  };
  if (feed.network) draw();
  told();
  return { title: "Network", update: draw, events: told, end: traffic.end };
}

/** Says important events to who cannot see them; not what was kept from before the page was opened. */
export function announce() {
  const opened = now();
  const polite = document.getElementById("polite");
  const assertive = document.getElementById("assertive");
  on("events", (fresh) => {
    const news = fresh.filter((event) => event.at_ms === null || event.at_ms > opened - 2000);
    const bad = news.filter((event) => event.level === "bad").at(-1);
    const mild = news.filter((event) => event.level === "warning" || event.level === "good").at(-1);
    if (bad) say(assertive, `${bad.subject}: ${bad.text}`);
    if (mild) say(polite, `${mild.subject}: ${mild.text}`);
  });
}
