// A controller that is made up: it answers what the page asks, about a network of any size, and does on demand what a real one
// does seldom. `node mock.mjs --port 4690 --switches 100 --names 1000000 [--hostile] [--read-only] [--lively]`.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { brotliCompressSync } from "node:zlib";
import { abilene, fabric, HOSTILE } from "./networks.mjs";

const WEB = new URL("../", import.meta.url);
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8" };
const POLICY = readFileSync(new URL("../../src/shell/web/policy.txt", import.meta.url), "utf8").trim();
const KEPT = 1000;
const hash = (n) => { let a = (n * 2654435761) >>> 0; a ^= a >>> 15; a = Math.imul(a, 0x2c1b3c6d) >>> 0; a ^= a >>> 12; return (a >>> 0) / 4294967296; };

const WHY = {
  alien: "A frame from a host to a name that no host has. Some are normal: a host asks for one that left. Many: see which host sends them, and whether names are missing.",
  source_mac: "From a host port: the source MAC address is no name at this port. Add the name, or let the port learn its hosts.",
  port_down: "The port of exit is down. Check the cable and the interface.",
  broadcast: "A broadcast that nobody is to hear: it is carried if its sender's tenant is among `[groups] tenants` in controller.toml.",
  tx_full: "The queue of the port of exit is full: more comes than the port sends.",
};

export class Mock {
  constructor({ switches = 11, names = 10_000, hostile = false, may_change = true } = {}) {
    const net = switches === 11 ? abilene() : switches === 0 ? { switches: [], links: [] } : fabric(switches);
    this.switches = net.switches;
    this.links = net.links;
    this.found = [];
    this.pending = [];
    this.waiting = [];
    this.troubles = [];
    this.n_names = names;
    this.extra = [];
    this.may_change = may_change;
    this.follows = null;
    this.drained = false;
    this.spreads = false;
    this.refusing = 0;
    this.names_delay_ms = () => 0;
    this.asked = [];
    this.n_polls = 0;
    this.n_aborted = 0;
    this.events = [];
    this.seq = 0;
    this.clients = new Set();
    this.sockets = new Set();
    this.started = Date.now();
    this.acts = [];
    if (hostile) this.beHostile();
    this.gateways = this.switches.filter((each) => each.hosts > 0);
    this.tell("controller", "controller", "started", "info");
  }

  beHostile() {
    const rename = new Map(HOSTILE.slice(0, this.switches.length).map((name, i) => [this.switches[i].name, name]));
    const to = (name) => rename.get(name) ?? name;
    for (const each of this.switches) each.name = to(each.name);
    for (const link of this.links) for (const end of [link.a, link.b]) end.switch = to(end.switch);
    this.extra = HOSTILE.map((name, i) => ({ name, host: HOSTILE[(i + 1) % HOSTILE.length], switch: this.switches[i % this.switches.length].name, port: i + 1, tenant: 0, ip: "", learnt_ms: 0 }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    this.pending = HOSTILE.slice(0, 3).map((name) => ({ name: `pending ${name}`, version: name, address: name, first_ms: Date.now() - 60_000, last_ms: Date.now() }));
    this.waiting = HOSTILE.map((name, i) => ({ name, ip: name, at: { switch: this.switches[0].name, port: i }, tenant: i, first_ms: Date.now() - 60_000, why: name }));
    this.troubles = HOSTILE.slice(0, 2);
    this.switches[1].cannot_follow = HOSTILE[0];
    for (const text of HOSTILE) this.tell("link", text, text, "bad");
  }

  /** Names in order: MAC addresses, three apart. */
  nameAt(i) { return `02:00:${(3 * i).toString(16).padStart(8, "0").match(/../g).join(":")}`; }
  recordAt(i) {
    const at = this.gateways[i % this.gateways.length];
    return { name: this.nameAt(i), host: `h-${at.name}`, switch: at.name, port: 100, tenant: 0, ip: i % 7 === 0 ? `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}` : "", learnt_ms: i % 5 === 0 ? this.started - 3_600_000 : 0 };
  }
  from(q) {
    let low = 0; let high = this.n_names;
    while (low < high) { const mid = (low + high) >> 1; if (this.nameAt(mid) < q) low = mid + 1; else high = mid; }
    return low;
  }
  findNames(params) {
    const limit = Math.min(Number(params.get("limit") ?? 50), 1000);
    const started = performance.now();
    const names = [];
    const q = params.get("q") ?? "";
    const host = params.get("host");
    if (host !== null) {
      const step = this.gateways.findIndex((each) => `h-${each.name}` === host);
      if (step >= 0) for (let i = step; i < this.n_names && names.length <= limit; i += this.gateways.length) names.push(this.recordAt(i));
      names.push(...this.extra.filter((each) => each.host === host));
    } else {
      for (let i = this.from(q); i < this.n_names && names.length <= limit && this.nameAt(i).startsWith(q); i += 1) names.push(this.recordAt(i));
      names.push(...this.extra.filter((each) => each.name.startsWith(q)));
    }
    return { names: names.slice(0, limit), more: names.length > limit, took_ms: performance.now() - started };
  }

  carried(link, i, back) {
    if (!link.up || link.cut) return 0;
    const base = 10 ** (3.3 + 5.4 * hash(2 * i + (back ? 1 : 0)));
    return base * (1 + 0.15 * Math.sin(Date.now() / 9000 + i));
  }
  rates(name) {
    let bytes_in_s = 0; let bytes_out_s = 0;
    for (const [i, link] of (this.at ??= this.index()).get(name) ?? []) {
      const mine = link.a.switch === name;
      bytes_in_s += this.carried(link, i, mine); bytes_out_s += this.carried(link, i, !mine);
    }
    return { bytes_in_s, bytes_out_s };
  }
  index() {
    const at = new Map(this.switches.map((each) => [each.name, []]));
    this.links.forEach((link, i) => { at.get(link.a.switch)?.push([i, link]); at.get(link.b.switch)?.push([i, link]); });
    return at;
  }

  network() {
    const seconds = (Date.now() - this.started) / 1000;
    return {
      version: "0.1.0", uptime_seconds: seconds, now_ms: Date.now(), name_kind: "mac", follows: this.follows, drained: this.drained,
      names: this.n_names + this.extra.length, max_names: 2 * this.n_names + 100, learnt: Math.floor(this.n_names / 5), changes: 1_234_567 + Math.floor(seconds * 40),
      pending_pushes: 0, may_change: this.may_change, who: "me",
      switches: this.switches.map((each, i) => {
        const rates = this.rates(each.name);
        return {
          name: each.name, id: i + 1, connected: each.connected ?? true, in_step: each.in_step ?? true, cannot_follow: each.cannot_follow ?? null, transit: each.transit ?? true,
          hosts: each.hosts, edges: this.edges(each, i), sent_messages: 1000 + i, acknowledged_messages: each.in_step === false ? 900 + i : 1000 + i, sent_bytes: 45_000 * (i + 1),
          counters: each.connected === false ? null : { age_ms: 800, frames_in_s: rates.bytes_in_s / 700, frames_out_s: rates.bytes_out_s / 700, ...rates, drops_s: (i % 4 === 1 ? 0.5 + i / 10 : 0) + 0.3, expected_drops_s: 0.3 },
        };
      }),
      pending: this.pending,
      links: this.links.map((link, i) => ({ ...link, bytes_s: [this.carried(link, i, false), this.carried(link, i, true)] })),
      found: this.found, waiting: this.waiting.slice(0, 50), n_waiting: this.waiting.length, troubles: this.troubles,
    };
  }

  /** Its hosts, and its ports to networks outside. */
  edges(each, i) {
    if (!(each.hosts > 0) || this.switches.length > 60) return [];
    const hosts = Array.from({ length: i % 5 === 2 ? 9 : 1 + (i % 3) }, (_, n) => ({ role: "host", port: 100 + n, name: n === 0 ? `h-${each.name}` : `h${n}-${each.name}`, up: i !== 5 || n > 0 }));
    return i % 4 === 3 ? [...hosts, { role: "outside", port: 200, up: true }] : hosts;
  }

  /** An hour, of which the first quarter is not known. */
  history(name) {
    const i = name === undefined ? 0 : this.switches.findIndex((each) => each.name === name);
    return { every_s: 30, bytes_s: Array.from({ length: 120 }, (_, n) => (n < 30 || (n > 70 && n < 74) ? null : 1e8 * (1.2 + Math.sin(n / 9 + i) + 0.3 * hash(n + 7 * i)))) };
  }

  switchPage(name) {
    const i = this.switches.findIndex((each) => each.name === name);
    if (i < 0) return null;
    const each = this.switches[i];
    const ports = [];
    for (const [j, link] of (this.at ??= this.index()).get(name)) {
      const mine = link.a.switch === name;
      const bytes_in_s = this.carried(link, j, mine); const bytes_out_s = this.carried(link, j, !mine);
      const port = (mine ? link.a : link.b).port;
      ports.push({ port, name: `eth${port}`, kind: "trunk", hellos_lost: j % 3, frames_in: 12_000_000, bytes_in: 9e9, frames_out: 11_000_000, bytes_out: 8e9, frames_in_s: bytes_in_s / 700, bytes_in_s, frames_out_s: bytes_out_s / 700, bytes_out_s });
    }
    if (each.hosts > 0) ports.push({ port: 100, name: "eth0", kind: "host", frames_in: 4_000_000, bytes_in: 2e9, frames_out: 4_100_000, bytes_out: 2.2e9, frames_in_s: 1200, bytes_in_s: 840_000, frames_out_s: 1300, bytes_out_s: 910_000 });
    const names = each.hosts > 0 ? Math.floor(this.n_names / this.gateways.length) : this.n_names;
    return {
      name, hosts: each.hosts > 0 ? [{ name: `h-${name}`, port: 100, learnt: 12 }] : [],
      memory: { resident_bytes: 38_000_000 + names * 30, names, parts: [{ part: "fib", bytes: this.n_names * 2.4 }, { part: "local_names", bytes: names * 26 }, { part: "buffers", bytes: 8_388_608 }] },
      counters: each.connected === false ? null : {
        age_ms: 800, ports: ports.sort((a, b) => a.port - b.port),
        drops: Object.entries(WHY).map(([reason, why], k) => ({ reason, total: [1129, 21, 1, 4410, 0][k] * (i + 1), a_second: i % 4 === 1 && k === 0 ? 0.5 + i / 10 : 0, why, expected: reason === "broadcast" })), totals: { frames_in: 16_000_000, frames_out: 15_900_000 },
      },
    };
  }

  record(name) {
    const i = this.from(name);
    return i < this.n_names && this.nameAt(i) === name ? this.recordAt(i) : this.extra.find((each) => each.name === name);
  }
  trace(name, from) {
    const goal = this.record(name);
    if (!goal) return { hops: [{ switch: from, does: "drops it: no host has this name" }], end: "dropped", sentence: `No host has this name: ${from} drops a frame to it as alien.` };
    const before = new Map([[from, null]]);
    const queue = [from];
    while (queue.length > 0 && !before.has(goal.switch)) {
      const at = queue.shift();
      for (const [, link] of (this.at ??= this.index()).get(at) ?? []) {
        const next = link.a.switch === at ? link.b.switch : link.a.switch;
        if (!link.up || link.cut || before.has(next)) continue;
        before.set(next, { at, port: link.a.switch === at ? link.a.port : link.b.port });
        queue.push(next);
      }
    }
    if (!before.has(goal.switch)) return { hops: [{ switch: from, does: "drops it: no path" }], end: "dropped", sentence: `No path leads from ${from} to ${goal.switch}.` };
    const hops = [{ switch: goal.switch, does: `hands it to ${goal.host} at port ${goal.port}`, value: 1, action: `port:${goal.port}` }];
    for (let at = goal.switch; before.get(at); at = before.get(at).at) hops.unshift({ switch: before.get(at).at, does: `sends by port ${before.get(at).port} to ${at}`, value: 2, action: this.spreads ? `ports:${before.get(at).port}|77` : `port:${before.get(at).port}` });
    return { hops, end: "delivered", sentence: `It reaches ${goal.host} after ${hops.length - 1} ${hops.length === 2 ? "hop" : "hops"}.` };
  }

  /** An event, to all that listen. */
  tell(kind, subject, text, level) {
    this.seq += 1;
    const event = { seq: this.seq, at_ms: Date.now(), kind, subject, text, level };
    this.events.push(event);
    if (this.events.length > KEPT) this.events.shift();
    for (const client of this.clients) client.write(`id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`);
  }
  /** `n` events as fast as they are taken. */
  async flood(n) {
    for (let i = 0; i < n; i += 1) {
      this.tell(["link", "switch", "host", "names"][i % 4], `s${i % 97}:${i % 9}`, `event ${i} of a flood, with some text of usual length`, ["info", "good", "warning"][i % 3]);
      if (i % 200 === 199) {
        const full = [...this.clients].filter((client) => client.writableNeedDrain);
        await Promise.all(full.map((client) => new Promise((done) => {
          const end = () => { client.off("drain", end); client.off("close", end); done(); };
          client.on("drain", end); client.on("close", end);
        })));
        await new Promise(setImmediate);
      }
    }
  }
  cut(i, cut = true) {
    const link = this.links[i];
    link.cut = cut;
    const ends = `${link.a.switch}:${link.a.port} – ${link.b.switch}:${link.b.port}`;
    this.tell("link", ends, cut ? "cut: no hello for 30 ms; frames go round it" : "carries frames again", cut ? "bad" : "good");
  }
  act(what) {
    if (!this.may_change) return [403, { error: "This needs the role writer: ask for a certificate with it." }];
    this.acts.push(what);
    const link = what.end && this.links.find((each) => [each.a, each.b].some((end) => end.switch === what.end.switch && end.port === what.end.port));
    const each = this.switches.find((one) => one.name === what.name);
    if (what.do === "switch.accept" && this.pending.some((one) => one.name === what.name)) {
      this.pending = this.pending.filter((one) => one.name !== what.name);
      this.switches.push({ name: what.name, hosts: 0 });
      this.at = null;
      this.tell("switch", what.name, "accepted", "good");
      return [200, { sentence: `Switch ${what.name} is accepted.` }];
    }
    if (what.do === "links.accept") {
      const n = this.found.length;
      for (const { a, b } of this.found) this.links.push({ a, b, cost: 1, up: true, cut: false, raised: 0 });
      this.found = [];
      this.at = null;
      return [200, { sentence: `${n} links are accepted.` }];
    }
    if (what.do === "host.accept" && this.waiting.some((one) => one.name === what.name)) {
      this.waiting = this.waiting.filter((one) => one.name !== what.name);
      return [200, { sentence: "1 name added" }];
    }
    if (link && what.do === "link.drain") { link.up = false; return [200, { sentence: `The link at ${what.end.switch}:${what.end.port} is down, and no path leads over it.` }]; }
    if (link && what.do === "link.undrain") { link.up = true; link.raised = 0; return [200, { sentence: "The link is in use again." }]; }
    if (each && what.do === "switch.drain") { each.transit = false; return [200, { sentence: `Switch ${what.name}: no path leads through it.` }]; }
    if (each && what.do === "switch.undrain") { each.transit = true; return [200, { sentence: `Switch ${what.name}: paths of others may lead through it again.` }]; }
    return [404, { error: "There is no such thing: fibula switch list and fibula link list show what there is." }];
  }

  async serve(request, response) {
    const url = new URL(request.url, "http://mock");
    const json = (status, body) => { response.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store", "Content-Security-Policy": POLICY }); response.end(JSON.stringify(body)); };
    if (this.refusing) return json(this.refusing, { error: "Your certificate was revoked: ask for a new one." });
    const { pathname, searchParams } = url;
    if (pathname === "/ui/network") {
      this.n_polls += 1;
      return json(200, this.network());
    }
    if (pathname === "/ui/names") {
      const q = searchParams.get("q");
      this.asked.push(q);
      response.on("close", () => { if (!response.writableFinished) this.n_aborted += 1; });
      const delay = this.names_delay_ms(q);
      if (delay) await new Promise((done) => { setTimeout(done, delay); });
      return json(200, this.findNames(searchParams));
    }
    if (pathname === "/ui/switch") { const page = this.switchPage(searchParams.get("name")); return page ? json(200, page) : json(404, { error: "There is no such switch: fibula switch list shows them." }); }
    if (pathname === "/ui/history") return json(200, this.history(searchParams.get("name") ?? undefined));
    if (pathname === "/ui/trace") return json(200, this.trace(searchParams.get("name"), searchParams.get("from")));
    if (pathname === "/ui/events") return this.stream(request, response);
    if (pathname === "/ui/act" && request.method === "POST") {
      let body = "";
      for await (const chunk of request) body += chunk;
      if (request.headers["x-fibula"] !== "1") return json(403, { error: "The header X-Fibula is missing." });
      return json(...this.act(JSON.parse(body)));
    }
    const file = pathname === "/" ? "index.html" : pathname.match(/^\/ui\/([a-z]+\.(?:js|css))$/)?.[1];
    if (!file) return json(404, { error: "There is no such page." });
    try {
      const content = await readFile(new URL(file, WEB));
      const packed = /\bbr\b/.test(request.headers["accept-encoding"] ?? "");
      response.writeHead(200, { "Content-Type": TYPES[file.split(".")[1]], "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache", ...(packed && { "Content-Encoding": "br" }) });
      response.end(packed ? ((this.packed ??= new Map()).get(file) ?? this.pack(file, content)) : content);
    } catch { json(404, { error: "There is no such file." }); }
  }
  pack(file, content) { const bytes = brotliCompressSync(content); this.packed.set(file, bytes); return bytes; }

  stream(request, response) {
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store", "Content-Security-Policy": POLICY });
    const last = Number(request.headers["last-event-id"] ?? 0);
    const after = last > this.seq ? 0 : last;
    const kept = this.events.filter((event) => event.seq > after);
    const missed = kept.length > 0 ? kept[0].seq - after - 1 : 0;
    if (missed > 0) response.write(`data: ${JSON.stringify({ kind: "gap", missed })}\n\n`);
    response.write(`: hello\n\n${kept.map((event) => `id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`).join("")}`);
    this.clients.add(response);
    response.on("close", () => this.clients.delete(response));
  }

  listen(port = 0) {
    this.server = createServer((request, response) => this.serve(request, response).catch((error) => { console.error(error); response.destroy(); }));
    this.server.on("connection", (socket) => { this.sockets.add(socket); socket.on("close", () => this.sockets.delete(socket)); });
    return new Promise((done) => this.server.listen(port, "127.0.0.1", () => { this.port = this.server.address().port; done(`http://127.0.0.1:${this.port}`); }));
  }
  /** As if it ended: no connection stays, none is taken. */
  leave() {
    for (const socket of this.sockets) socket.destroy();
    return new Promise((done) => this.server.close(done));
  }
  /** Started again: it counts its events anew. */
  async comeBack() {
    this.started = Date.now();
    this.seq = 0;
    this.events = [];
    this.tell("controller", "controller", "started", "info");
    return this.listen(this.port);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = (name, otherwise) => { const i = process.argv.indexOf(`--${name}`); return i < 0 ? otherwise : Number(process.argv[i + 1]); };
  const mock = new Mock({ switches: option("switches", 11), names: option("names", 1_000_000), hostile: process.argv.includes("--hostile"), may_change: !process.argv.includes("--read-only") });
  console.log(await mock.listen(option("port", 4690)));
  if (process.argv.includes("--lively")) {
    let cut = false;
    setInterval(() => { cut = !cut; mock.cut(3, cut); }, 8000);
  }
}
