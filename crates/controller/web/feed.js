// What the page knows of the controller: one answer about the network, asked again every two seconds, and the events.
//
// The stream of events is read by `fetch`, which, other than EventSource, tells a refusal from a broken connection and lets
// us say where to go on. Memory is bounded: the last 1,000 events, 60 samples of rates, nothing else grows.
import { setClock, short } from "./units.js";

const POLL_MS = 2000;
const REFUSED_MS = 10_000;
const HURRY_MS = 300;
const HIDDEN_MS = 60_000;
export const MAX_EVENTS = 1000;
export const SAMPLES = 60;
const MAX_LINE = 1 << 20;

export class Refused extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
  get unauthorised() { return this.status === 401 || this.status === 403; }
}

/** An answer in JSON. Throws [`Refused`] with the controller's sentence, or what fetch throws. */
async function read(response) {
  let body = null;
  try { body = await response.json(); } catch (error) { if (error.name === "AbortError") throw error; }
  if (!response.ok) throw new Refused(response.status, short(body?.error || `The controller answered with status ${response.status}.`, 500));
  if (body === null || typeof body !== "object") throw new Refused(502, "Something other than a controller answers here: its answer is not JSON.");
  return body;
}

export async function ask(path, params, signal) {
  const query = new URLSearchParams(params).toString();
  const response = await fetch(query ? `${path}?${query}` : path, { cache: "no-store", signal });
  try {
    return await read(response);
  } catch (error) {
    // Whether that holds for all, the next answer about the network tells.
    if (error.unauthorised) hurry();
    throw error;
  }
}

/** Asks for a change; gives the controller's sentence. */
export async function act(what) {
  const response = await fetch("/ui/act", {
    method: "POST", cache: "no-store", headers: { "X-Fibula": "1", "Content-Type": "application/json" }, body: JSON.stringify(what),
  });
  const { sentence } = await read(response);
  hurry();
  return short(sentence ?? "Done.", 500);
}

/** phase: "first" (nothing heard yet), "live", "lost" (trying again), "refused" (no longer allowed). */
export const feed = {
  network: null, phase: "first", reason: "", lost_ms: 0, retry_ms: 0,
  events: [], n_events: 0, streaming: false,
  rates: new Map(), total: [], behind: new Map(),
};

const heard = { network: new Set(), phase: new Set(), events: new Set() };
/** Calls `then` at each change of "network", "phase" or "events". Gives what ends that. */
export function on(what, then) {
  heard[what].add(then);
  return () => heard[what].delete(then);
}
const tell = (what, ...about) => { for (const then of [...heard[what]]) then(...about); };

function phase(next, reason = "") {
  if (feed.phase === next && feed.reason === reason) return;
  if (next === "lost" && feed.phase !== "lost") feed.lost_ms = Date.now();
  feed.phase = next;
  feed.reason = reason;
  tell("phase");
}

let timer = 0;
let asking = false;
let again = false;
let hurry_ms = HURRY_MS; // longer where an answer takes long, as that about 1,000 switches does
let asked_at = -Infinity;
let failures = 0;
let last_up = null;

/** Nothing stays of what is no longer to be seen. */
function refused(error) {
  stream?.abort();
  Object.assign(feed, { network: null, events: [], n_events: 0, total: [] });
  feed.rates.clear();
  feed.behind.clear();
  last_id = null;
  phase("refused", error.message);
}

function later(ms) {
  clearTimeout(timer);
  feed.retry_ms = Date.now() + ms;
  timer = setTimeout(poll, ms);
}

/** Asks soon: something happened. */
export function hurry() {
  if (feed.phase === "refused" || sleeping) return;
  if (asking) { again = true; return; }
  later(Math.max(0, asked_at + hurry_ms - performance.now()));
}

/** Asks now, as the button of the banner does. */
export function retry() { if (!asking) later(0); }

async function poll() {
  if (asking || sleeping) return;
  asking = true;
  again = false;
  asked_at = performance.now();
  const early = window.fibulaFirst;
  window.fibulaFirst = null;
  const abort = new AbortController();
  const patience = setTimeout(() => abort.abort(), 10_000);
  try {
    const response = await (early ?? fetch("/ui/network", { cache: "no-store", signal: abort.signal }));
    const network = await read(response);
    const took = performance.now() - asked_at;
    failures = 0;
    restarted(network);
    note(network);
    phase("live");
    tell("network");
    follow();
    if (!early) hurry_ms = Math.min(1000, Math.max(HURRY_MS, 5 * took));
    later(again ? hurry_ms : Math.max(POLL_MS, 10 * took));
  } catch (error) {
    failures += 1;
    if (error.unauthorised) {
      refused(error);
      later(REFUSED_MS);
    } else if (feed.phase === "refused") {
      // Who is refused gets no connection any more, and no browser tells a page why: only an answer says that this is over.
      later(REFUSED_MS);
    } else {
      stream?.abort();
      phase("lost", error instanceof Refused ? error.message : error.name === "AbortError" ? "It does not answer." : "It cannot be reached.");
      later(Math.min(500 * 2 ** failures, 8000));
    }
  } finally {
    clearTimeout(patience);
    asking = false;
  }
}

/** A controller that started again counts its events anew. */
function restarted(network) {
  // It was asked after the answer before had come: so much older it must be at least, if it is the same.
  if (last_up && network.uptime_seconds + 0.1 < last_up.uptime + (asked_at - last_up.at) / 1000) {
    last_id = null;
    stream?.abort();
  }
  last_up = { uptime: network.uptime_seconds, at: performance.now() };
}

function note(network) {
  setClock(network.now_ms);
  for (const list of ["switches", "pending", "links", "found", "waiting", "troubles"]) network[list] ??= [];
  feed.network = network;
  let sum = null;
  const names = new Set();
  for (const each of network.switches) {
    names.add(each.name);
    const rates = feed.rates.get(each.name) ?? [];
    if (!feed.rates.has(each.name)) feed.rates.set(each.name, rates);
    rates.push(each.counters ? each.counters.bytes_in_s : null);
    if (rates.length > SAMPLES) rates.shift();
    if (each.counters) {
      sum ??= { bytes_s: 0, frames_s: 0, drops_s: 0, expected_s: 0 };
      sum.bytes_s += each.counters.bytes_in_s; sum.frames_s += each.counters.frames_in_s; sum.drops_s += lost(each.counters); sum.expected_s += each.counters.expected_drops_s ?? 0;
    }
    // A switch is out of step for a moment at each change: only one that stays so is worth a word.
    if (each.connected && !each.in_step) { if (!feed.behind.has(each.name)) feed.behind.set(each.name, Date.now()); } else feed.behind.delete(each.name);
  }
  for (const name of feed.rates.keys()) if (!names.has(name)) { feed.rates.delete(name); feed.behind.delete(name); }
  feed.total.push(sum);
  if (feed.total.length > SAMPLES) feed.total.shift();
}

let stream = null;
let last_id = null;
let not_before = 0;

async function follow() {
  if (stream || sleeping || performance.now() < not_before) return;
  const abort = new AbortController();
  stream = abort;
  try {
    const headers = { Accept: "text/event-stream" };
    if (last_id !== null) headers["Last-Event-ID"] = String(last_id);
    const response = await fetch("/ui/events", { headers, cache: "no-store", signal: abort.signal });
    if (!response.ok) await read(response);
    feed.streaming = true;
    tell("phase");
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    let data = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop();
      if (rest.length + data.length > MAX_LINE) throw new Error("an event without end");
      const batch = [];
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line.startsWith("data:")) data += line.slice(line[5] === " " ? 6 : 5);
        else if (line === "" && data) { const event = parse(data); data = ""; if (event) batch.push(event); }
      }
      if (batch.length > 0) take(batch);
    }
  } catch (error) {
    if (error instanceof Refused) not_before = performance.now() + REFUSED_MS;
  } finally {
    abort.abort();
    if (stream === abort) stream = null;
    const was = feed.streaming;
    feed.streaming = false;
    if (was) tell("phase");
    if (was) hurry();
  }
}

function parse(data) {
  let raw;
  try { raw = JSON.parse(data); } catch { return null; }
  if (raw.kind === "gap") {
    return { seq: null, at_ms: null, kind: "gap", subject: "", text: `${Number(raw.missed) || "Some"} events were missed`, level: "info" };
  }
  if (!Number.isFinite(raw.seq)) return null;
  return {
    seq: raw.seq, at_ms: Number(raw.at_ms) || 0, kind: short(raw.kind, 20), subject: short(raw.subject, 200), text: short(raw.text, 500),
    level: ["good", "info", "warning", "bad"].includes(raw.level) ? raw.level : "info",
  };
}

let n_seen = 0;
function take(batch) {
  // After a restart the controller tells again what it keeps, and some of that may be here already.
  const fresh = batch.filter((event) => event.kind === "gap" || last_id !== null
    || !feed.events.some((old) => old.seq === event.seq && old.at_ms === event.at_ms));
  for (const event of fresh) {
    n_seen += 1;
    event.key = n_seen;
    if (event.seq !== null) last_id = event.seq;
  }
  feed.n_events += fresh.length;
  // A gap right before the last 1,000 stays: the controller keeps as many, so that is where gaps are.
  const all = feed.events.concat(fresh.slice(-MAX_EVENTS - 1));
  const first = Math.max(0, all.length - MAX_EVENTS);
  feed.events = all.slice(first > 0 && all[first - 1].kind === "gap" ? first - 1 : first);
  if (fresh.length > 0) tell("events", fresh);
  if (fresh.some((event) => event.kind !== "names")) hurry();
}

// A hidden page leaves the controller alone, and later takes up the events where it left them.
let sleeping = false;
let sleep_timer = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(sleep_timer);
  if (document.hidden) {
    sleep_timer = setTimeout(() => { sleeping = true; clearTimeout(timer); stream?.abort(); }, HIDDEN_MS);
  } else if (sleeping) {
    sleeping = false;
    later(0);
  }
});

export const begin = () => poll();

// What a link and a switch are, in one word each; colours and marks follow from it.
export const keyOf = (link) => JSON.stringify([link.a.switch, link.a.port, link.b.switch, link.b.port]);
export const endOf = (end) => `${end.switch}:${end.port}`;

/** Frames dropped a second that someone may miss: not those that are meant to be dropped, such as a broadcast that no host is to receive. */
export const lost = (counters) => Math.max(0, (counters?.drops_s ?? 0) - (counters?.expected_drops_s ?? 0));

export function linkState(link) {
  if (link.cut) return "cut";
  if (!link.up) return "down";
  return link.raised > 0 ? "draining" : "up";
}
export const LINK_WORDS = { up: "up", cut: "cut", down: "taken down", draining: "draining", found: "found, not accepted" };

export function switchState(each) {
  if (!each.connected) return "away";
  if (each.cannot_follow) return "stuck";
  if (!each.in_step) return "behind";
  return each.transit === false ? "drained" : "ok";
}
export const SWITCH_WORDS = {
  ok: "in step", away: "not connected", stuck: "cannot follow", behind: "not in step", drained: "drained: carries no paths of other switches", pending: "waiting to be accepted",
};
