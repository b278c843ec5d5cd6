// The page: its views by the part of the address behind #, the figures on top, and what is said when the controller is away.
import { announce, concerns, networkView } from "./attention.js";
import { h, put, say, sync } from "./dom.js";
import { eventsView } from "./events.js";
import { begin, feed, linkState, on, retry, switchState } from "./feed.js";
import { Graph } from "./graph.js";
import { inventoryView } from "./inventory.js";
import { linkView, sparkline } from "./link.js";
import { nameView, namesView, searchField } from "./names.js";
import { switchView } from "./switch.js";
import { bits, count, rate, short, span, ticks } from "./units.js";

const VIEWS = { "": networkView, names: namesView, name: nameView, switch: switchView, link: linkView, events: eventsView, inventory: inventoryView };
const PARENTS = { name: "names", switch: "inventory", link: "inventory" };
const $ = (id) => document.getElementById(id);

const graph = new Graph($("stage"));
let view = null;
let shown = "";

function address() {
  const text = location.hash.startsWith("#/") ? location.hash.slice(2) : "";
  const [name, query = ""] = text.split(/\?(.*)/s);
  const params = Object.fromEntries(new URLSearchParams(query));
  return { name: Object.hasOwn(VIEWS, name) ? name : "", params };
}

function go(first = false) {
  if (location.hash && !location.hash.startsWith("#/")) return;
  const { name, params } = address();
  const key = name === "names" && params.host === undefined ? "names" : `${name} ${JSON.stringify(params)}`;
  if (key === shown && view?.change) view.change(params);
  else {
    view?.end?.();
    const panel = $("panel");
    panel.replaceChildren();
    shown = key;
    view = VIEWS[name](panel, params, graph);
    panel.scrollTop = 0;
    put(document.body, "class", `view-${name || "network"}${view.full ? " full" : ""}`);
    if (!view.full && feed.network) graph.update();
    // The keyboard goes on in the new view, unless it is in the field that brought it here.
    const held = document.activeElement;
    if (!first && held?.closest?.(".graph")) say($("polite"), `${view.title} is shown beside the drawing.`);
    else if (!first && held !== $("query")) {
      const heading = panel.querySelector("h1, h2");
      if (heading) { put(heading, "tabindex", "-1"); heading.focus({ preventScroll: true }); }
    }
  }
  title();
  if (name !== "name" && document.activeElement !== $("query")) $("query").value = name === "names" ? (params.q ?? "") : "";
  const parent = PARENTS[name] ?? name;
  for (const link of $("nav").children) put(link, "aria-current", link.getAttribute("href") === `#/${parent}` ? (parent === name ? "page" : "true") : null);
}

/** Of a page among others one sees the title alone. */
function title() {
  const state = { lost: "(connection lost) ", refused: "(refused) " }[feed.phase];
  const urgent = feed.network ? concerns(feed.network, feed.behind, Date.now()).filter((each) => each.level !== "info").length : 0;
  const text = `${state ?? (urgent > 0 ? `(${count(urgent)}) ` : "")}${view.title} – fibula`;
  if (document.title !== text) document.title = text;
}

function figure(term) {
  const value = h("span");
  const node = h("div", null, h("dt", null, term), h("dd", null, value));
  $("strip").append(node);
  return { node, value };
}
const figures = { switches: figure("Switches in step"), links: figure("Links carrying"), names: figure("Names"), load: figure("Traffic"), frames: figure("Frames/s"), drops: figure("Drops/s"), waiting: figure("To be pushed"), up: figure("Up for") };
const load = sparkline("traffic, last two minutes");
figures.load.value.parentNode.append(load.node);

function strip() {
  const { network, total } = feed;
  const good = network.switches.filter((each) => ["ok", "drained"].includes(switchState(each))).length;
  const carrying = network.links.filter((link) => ["up", "draining"].includes(linkState(link))).length;
  const set = ({ node, value }, text, level, title) => { say(value, text); put(node, "class", level); put(node, "title", title); };
  set(figures.switches, `${count(good)} / ${count(network.switches.length)}`, good < network.switches.length ? "bad" : null);
  set(figures.links, `${count(carrying)} / ${count(network.links.length)}`, network.links.some((link) => link.cut) ? "bad" : null);
  set(figures.names, count(network.names), network.max_names && network.names > 0.95 * network.max_names ? "warning" : null, `${network.max_names ? `of at most ${count(network.max_names)}, ` : ""}${count(network.learnt)} learnt, kind ${short(network.name_kind, 20)}`);
  const sum = total.at(-1);
  set(figures.load, sum ? bits(sum.bytes_s) : "–", null, "traffic that enters all switches, at all their ports");
  set(figures.frames, sum ? rate(sum.frames_s) : "–");
  set(figures.drops, sum ? rate(sum.drops_s) : "–", null, `frames per second that all switches dropped and that may be missed${sum?.expected_s > 0 ? `; ${rate(sum.expected_s)} more are dropped as they should be` : ""}`);
  set(figures.waiting, count(network.pending_pushes), null, `changes still to be sent to switches; ${count(network.changes)} changes so far`);
  set(figures.up, span(network.uptime_seconds), null, `controller ${short(network.version, 30)}`);
  load.update(total.map((each) => (each ? each.bytes_s : null)));
}

// A browser tells the user why a connection fails, and the page never.
const UNKNOWN = location.protocol === "https:" ? " Or your certificate no longer lets you in: if you load the page again, the browser says which." : "";
const PHASES = { first: "connecting", live: "live", lost: "connection lost", refused: "refused" };
function phase() {
  say($("phase-text"), feed.phase === "live" && !feed.streaming ? "live, no events" : PHASES[feed.phase]);
  put($("phase"), "class", `phase ${feed.phase}${feed.phase === "live" && !feed.streaming ? " half" : ""}`);
  put($("phase"), "title", feed.network?.who ? `as ${short(feed.network.who, 60)}` : null);
  put(document.documentElement, "data-phase", feed.phase);
  banners();
  title();
  view?.phase?.();
}

function banners() {
  const all = [];
  if (feed.phase === "lost") all.push({ key: "lost", level: "bad", title: "Connection to the controller lost, trying again.", text: `${feed.reason}${feed.network ? ` What you see is ${span((Date.now() - feed.lost_ms) / 1000)} old.` : ""} Switches keep forwarding meanwhile.${UNKNOWN}`, button: true });
  if (feed.phase === "refused") all.push({ key: "refused", level: "bad", title: "Your certificate no longer lets you in:", text: `${feed.reason}${/[.!?]$/.test(feed.reason) ? "" : "."} The network is no longer shown. The page asks again every 10 seconds; with another certificate, reload it.`, button: true });
  const network = feed.network;
  if (network?.follows) all.push({ key: "follows", level: "info", title: "This controller follows another one.", text: `${short(network.follows, 120)} leads: changes are made there.` });
  if (network?.drained) all.push({ key: "drained", level: "info", title: "This controller is drained.", text: "The others serve the switches. fibula controller resume puts it back into service." });
  sync($("banners"), all, (each) => each.key, (each) => {
    const text = h("span", { "aria-live": "off" });
    return { node: h("div", { class: `banner ${each.level}`, role: each.level === "bad" ? "alert" : "note" }, h("span", { class: "sign", "aria-hidden": "true" }, each.level === "bad" ? "✕" : "i"), h("p", null, h("strong", null, each.title), " ", text), each.button && h("button", { type: "button", class: "small", on: { click: retry } }, "Try now")), text };
  }, (row, each) => say(row.text, each.text));
}

function themes() {
  const button = $("theme");
  const show = () => say(button, `Theme: ${document.documentElement.dataset.theme ?? "auto"}`);
  button.addEventListener("click", () => {
    const next = { undefined: "light", light: "dark", dark: undefined }[document.documentElement.dataset.theme];
    if (next) document.documentElement.dataset.theme = next; else delete document.documentElement.dataset.theme;
    try { if (next) localStorage.setItem("fibula-theme", next); else localStorage.removeItem("fibula-theme"); } catch { /* It lasts as long as the page. */ }
    show();
  });
  show();
}

$("skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
themes();
searchField($("search"), $("query"));
announce();
addEventListener("hashchange", () => go());
on("phase", phase);
on("events", (fresh) => view?.events?.(fresh));
on("network", () => {
  strip();
  title();
  banners();
  if (!view?.full) graph.update();
  view?.update();
  // Marked when it has been painted: tests read how long that took.
  if (!document.body.dataset.ready) { document.body.dataset.ready = "yes"; requestAnimationFrame(() => setTimeout(() => performance.mark("useful"))); }
});
setInterval(() => { ticks(); if (feed.phase === "lost") banners(); }, 1000);
go(true);
phase();
begin();
