// The network drawn: switches as discs, links as lines whose width and colour say how much they carry.
//
// SVG throughout, so that every switch is an element that the keyboard and screen readers reach. Elements are made once and
// changed in place. A mark (cross, bar, arrow, plus) goes with each state: colour is never the only sign.
import { h, s, say, put, sync, route } from "./dom.js";
import { feed, keyOf, endOf, linkState, switchState, LINK_WORDS, SWITCH_WORDS } from "./feed.js";
import { EDGE, place } from "./layout.js";
import { bits, frames, plural, short } from "./units.js";

const MARKS = {
  cut: "M-4-4 4 4M4-4-4 4", away: "M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5", down: "M-4 0H4", stuck: "M0-4.5V1M0 4V4.4",
  behind: "M-4 0h.1M0 0h.1M4 0h.1", draining: "M0-4.5V3.5M-3.5.5 0 4 3.5.5", drained: "M0-4.5V3.5M-3.5.5 0 4 3.5.5", found: "M-4 0H4M0-4V4",
};
const LABELS = 60;
const STUBS = 6; // hosts and ports outside that are drawn at a switch; the others are a number
const HITS = 1500;
const CROWD = 300;

/** Steps of load: below 100 kbit/s, 1, 10, 100 Mbit/s, 1 Gbit/s, and above. */
// A width by script, in units that the drawing scales: the policy forbids style attributes.
const wide = (line, width) => { const text = width.toFixed(1); if (line.dataset.width !== text) { line.dataset.width = text; line.style.setProperty("--width", text); } return line; };
const loadOf = (bytes_s) => (Number.isFinite(bytes_s) ? Math.max(0, Math.min(5, Math.floor(Math.log10(Math.max(bytes_s * 8, 1)) - 4))) : 0);
export const widthOf = (bytes_s) => (Number.isFinite(bytes_s) ? 1.5 + 1.1 * Math.max(0, Math.min(5.2, Math.log10(Math.max(bytes_s * 8, 1) / 1e5))) : 1.5);
const busiest = (link) => (link.bytes_s ? Math.max(link.bytes_s[0], link.bytes_s[1]) : NaN);

const stateOf = (link) => (link.found ? "found" : linkState(link));

export function linkWords(link) {
  const state = stateOf(link);
  const carries = link.bytes_s ? `${bits(link.bytes_s[0])} there, ${bits(link.bytes_s[1])} back` : "load unknown";
  return { title: `${short(endOf(link.a))} – ${short(endOf(link.b))}`, state: LINK_WORDS[state], carries: state === "found" ? "" : carries };
}

export function switchWords(each) {
  const c = each.counters;
  return {
    title: short(each.name), state: each.cannot_follow ? `${SWITCH_WORDS.stuck}: ${short(each.cannot_follow, 120)}` : SWITCH_WORDS[switchState(each)],
    carries: c ? `${bits(c.bytes_in_s)} in, ${frames(c.frames_in_s)}` : "load unknown", hosts: plural(each.hosts, "host"),
  };
}

/** What is read aloud begins with what is seen. */
const called = (name) => (short(name, 18) === short(name) ? short(name) : `${short(name, 18)}, in full ${short(name)}`);

export class Graph {
  constructor(stage) {
    this.positions = new Map();
    this.shape = "";
    this.view = { x: 0, y: 0, k: 1 };
    this.moved = false;
    this.focus = null;
    this.trace = null;
    this.stubs = new Map(); // what the boxes of hosts take beside their switch, in pixels
    // From below: links, hosts, the way of a name, switches, what is wrong with links, the numbers of the way.
    this.lines = s("g"); this.edges = s("g", { "aria-hidden": "true" }); this.legs = s("g", { class: "trace" }); this.nodes = s("g"); this.marks = s("g", { "aria-hidden": "true" }); this.badges = s("g", { class: "trace", "aria-hidden": "true" });
    this.world = s("g", null, this.lines, this.edges, this.legs, this.nodes, this.marks, this.badges);
    this.svg = s("svg", { class: "graph", role: "group", "aria-label": "Topology" }, this.world);
    this.tip = h("div", { class: "tip", hidden: true });
    this.waiting = h("div", { class: "waiting", role: "group", "aria-label": "Switches that wait to be accepted" });
    const button = (label, text, does) => h("button", { type: "button", class: "plain", "aria-label": label, title: label, on: { click: does } }, text);
    this.tools = h("div", { class: "tools", role: "group", "aria-label": "Zoom" },
      button("Zoom in", "+", () => this.zoom(1.35)), button("Zoom out", "−", () => this.zoom(1 / 1.35)), button("Show all", "⤢", () => this.fit(true)));
    this.empty = h("p", { class: "empty", hidden: true }, "There are no switches yet. ", h("code", null, "fibula switch add s1"), " adds one; a switch that attaches by itself is listed here.");
    this.help = h("p", { class: "hidden", id: "graph-help" }, "Arrow keys move from switch to switch, Enter opens one, plus and minus zoom, zero shows all. The view Switches and links shows the same as tables.");
    put(this.svg, "aria-describedby", "graph-help");
    stage.append(this.svg, this.empty, this.tools, this.waiting, legend(), this.tip, this.help);
    this.stage = stage;
    this.listen();
    new ResizeObserver(() => { if (!this.moved) this.fit(); else this.apply(); }).observe(this.svg);
  }

  update() {
    const { switches, links, found, pending } = feed.network;
    const names = switches.map((each) => each.name);
    const known = new Set(names);
    const drawn = links.filter((link) => known.has(link.a.switch) && known.has(link.b.switch));
    for (const link of found) if (known.has(link.a.switch) && known.has(link.b.switch)) drawn.push({ ...link, found: true });
    const shape = JSON.stringify([names, drawn.map(keyOf), switches.map((each) => (each.edges?.length > 0 ? 1 : 0)).join("")]);
    if (shape !== this.shape) this.arrange(shape, names, drawn);
    put(this.svg, "aria-label", `Topology: ${plural(switches.length, "switch", "switches")}, ${plural(links.length, "link")}`);
    if (!known.has(this.focus)) this.focus = names[0] ?? null;
    const hits = drawn.length <= HITS;
    const wrong = drawn.filter((link) => stateOf(link) !== "up");
    const ordered = wrong.length > 0 ? drawn.filter((link) => stateOf(link) === "up").concat(wrong) : drawn;
    sync(this.lines, ordered, keyOf, (link) => this.line(link, hits), (row, link) => this.drawLink(row, link));
    sync(this.marks, wrong, keyOf, () => { const sign = s("path"); return { sign, node: s("g", null, s("g", { class: "loud" }, s("circle", { r: 8 }), sign)) }; }, (row, link) => this.drawMark(row, link));
    sync(this.edges, switches, (each) => each.name, () => { const stubs = s("g", { class: "still" }); return { node: s("g", null, stubs), stubs }; }, (row, each) => {
      const p = this.positions.get(each.name);
      put(row.node, "transform", `translate(${p.x.toFixed(1)} ${p.y.toFixed(1)})`);
      this.drawStubs(row, each);
    });
    sync(this.nodes, switches, (each) => each.name, (each) => this.node(each), (row, each) => this.drawSwitch(row, each));
    sync(this.waiting, pending.slice(0, 12), (each) => each.name, (each) => {
      const name = h("span");
      return { node: h("a", { class: "waits", href: route("", {}), title: "waits to be accepted" }, h("span", { class: "disc", "aria-hidden": "true" }), name), name };
    }, (row, each) => { say(row.name, short(each.name, 18)); put(row.node, "aria-label", `${called(each.name)}, waits to be accepted`); });
    this.waiting.hidden = pending.length === 0;
    this.empty.hidden = switches.length > 0;
    this.drawTrace();
    // The first time they are drawn it is known how far they reach.
    const reach = JSON.stringify([...this.stubs]);
    if (reach !== this.stubbed) { this.stubbed = reach; if (!this.moved) this.fit(); }
    if (this.named_for !== this.shape) this.apply();
  }

  arrange(shape, names, drawn) {
    const started = performance.now();
    this.shape = shape;
    // Found cables do not pull: accepting one moves nothing.
    const edges = drawn.filter((link) => !link.found).map((link) => [link.a.switch, link.b.switch]);
    this.positions = place(this.positions, names, edges);
    const beside = new Map();
    for (const link of drawn) {
      const pair = [link.a.switch, link.b.switch].sort().join("\u0000");
      if (!beside.has(pair)) beside.set(pair, []);
      beside.get(pair).push(keyOf(link));
    }
    this.bends = new Map();
    for (const keys of beside.values()) keys.forEach((key, i) => this.bends.set(key, (i - (keys.length - 1) / 2) * 26));
    this.sides = new Map();
    this.spare = spare(names, drawn, this.positions);
    this.order = sides(names, drawn, this.positions, this.spare);
    for (const [name, [first]] of this.order) this.sides.set(name, first);
    this.svg.classList.toggle("crowd", names.length > CROWD);
    this.degree = new Map();
    for (const link of drawn) for (const end of [link.a, link.b]) this.degree.set(end.switch, (this.degree.get(end.switch) ?? 0) + 1);
    // Many links at a switch: thinner ones.
    this.sparse = Math.max(0.4, (1.6 * names.length) / Math.max(1, drawn.length));
    const xs = [...this.positions.values()].map((p) => p.x); const ys = [...this.positions.values()].map((p) => p.y);
    if (xs.length > 0) this.room = Math.sqrt(((Math.max(...xs) - Math.min(...xs) + EDGE) * (Math.max(...ys) - Math.min(...ys) + EDGE)) / xs.length);
    if (!this.moved) this.fit();
    this.svg.dataset.layoutMs = (performance.now() - started).toFixed(1);
  }

  line(link, hits) {
    const key = keyOf(link);
    const stroke = s("path", { class: "line" });
    const hit = hits ? s("path", { class: "hit" }) : null;
    const node = s("g", { class: "link", "aria-hidden": "true" }, hit, stroke);
    const row = { node, stroke, hit, key };
    node.addEventListener("click", () => { if (!this.dragged && !row.link.found) location.hash = route("link", { a: row.link.a.switch, port: row.link.a.port }); });
    node.addEventListener("pointerenter", (event) => this.show(linkWords(row.link), event));
    node.addEventListener("pointerleave", () => this.hide());
    return row;
  }

  middle(link) {
    const a = this.positions.get(link.a.switch);
    const b = this.positions.get(link.b.switch);
    const bend = link.a.switch === link.b.switch ? 60 : (this.bends.get(keyOf(link)) ?? 0);
    // The same bend whichever end comes first.
    const sign = link.a.switch < link.b.switch ? 1 : -1;
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const mx = (a.x + b.x) / 2 - (sign * bend * (b.y - a.y)) / length;
    const my = (a.y + b.y) / 2 + (sign * bend * (b.x - a.x)) / length - (a === b ? bend : 0);
    return { a, b, mx, my, bend };
  }

  drawLink(row, link) {
    row.link = link;
    const state = stateOf(link);
    const { a, b, mx, my, bend } = this.middle(link);
    // A curve through the middle: its control point is twice as far out.
    const cx = 2 * mx - (a.x + b.x) / 2;
    const cy = 2 * my - (a.y + b.y) / 2;
    const at = (n) => n.toFixed(1);
    const d = bend ? `M${at(a.x)} ${at(a.y)}Q${at(cx)} ${at(cy)} ${at(b.x)} ${at(b.y)}` : `M${at(a.x)} ${at(a.y)}L${at(b.x)} ${at(b.y)}`;
    put(row.stroke, "d", d);
    if (row.hit) put(row.hit, "d", d);
    const load = busiest(link);
    put(row.node, "class", `link ${state} load-${loadOf(load)}${this.link?.key === row.key ? " selected" : ""}`);
    put(row.node, "data-ends", `${endOf(link.a)} ${endOf(link.b)}`);
    wide(row.stroke, state === "up" ? widthOf(load) : state === "down" ? 1.5 : 2.5);
  }

  drawMark(row, link) {
    const state = stateOf(link);
    const { mx, my } = this.middle(link);
    put(row.node, "class", `mark ${state}`);
    put(row.node, "data-ends", `${endOf(link.a)} ${endOf(link.b)}`);
    put(row.node, "data-at", `${mx.toFixed(1)} ${my.toFixed(1)}`);
    put(row.node, "transform", `translate(${mx.toFixed(1)} ${my.toFixed(1)})`);
    put(row.sign, "d", MARKS[state]);
  }

  node(each) {
    const name = each.name;
    const disc = s("circle", { class: "disc", r: 8 });
    const ring = s("circle", { class: "ring", r: 13 });
    const core = s("circle", { class: "core", r: 2.6 });
    const sign = s("path", { class: "sign" });
    const label = s("text", { class: "label" }, short(name, 18));
    const inner = s("g", { class: "still" }, ring, disc, core, sign, label);
    // Where there are many, a name is shown once its place is known.
    const node = s("g", { class: this.positions.size > LABELS ? "unnamed" : "", role: "link", tabindex: "-1" }, inner);
    const row = { node, disc, core, sign, label, name };
    node.addEventListener("click", () => { if (!this.dragged) this.open(name); });
    node.addEventListener("focus", () => { this.focus = name; this.rove(); this.reveal(name); this.show(switchWords(row.each), null, name); });
    node.addEventListener("blur", () => this.hide());
    node.addEventListener("pointerenter", (event) => this.show(switchWords(row.each), event));
    node.addEventListener("pointerleave", () => this.hide());
    return row;
  }

  drawSwitch(row, each) {
    row.each = each;
    const state = switchState(each);
    const p = this.positions.get(each.name);
    put(row.node, "transform", `translate(${p.x.toFixed(1)} ${p.y.toFixed(1)})`);
    put(row.node, "class", `switch ${state}${each.name === this.selected || this.link?.ends.includes(each.name) ? " selected" : ""}${each.hosts > 0 ? " gateway" : ""}${this.onTrace(each.name)}${row.node.classList.contains("unnamed") ? " unnamed" : ""}`);
    put(row.sign, "d", MARKS[state] ?? "");
    this.putLabel(row.label, each.name);
    if (row.state !== state && row.state !== undefined) this.named_for = null;
    row.state = state;
    const words = switchWords(each);
    put(row.node, "aria-label", `${called(each.name)}, ${words.state}, ${words.hosts}, ${words.carries}`);
    put(row.node, "tabindex", each.name === this.focus ? "0" : "-1");
  }

  /** Hosts, and ports to networks outside, as boxes where the fewest links leave a switch. */
  drawStubs(row, each) {
    const all = this.positions.size <= LABELS ? (each.edges ?? []) : [];
    const angles = this.spare.get(each.name) ?? [];
    // Names where there is room for them; elsewhere a pointer on the box tells it.
    const named = all.length <= 2 && this.size().w > 700;
    const key = JSON.stringify([all, each.n_edges, angles, named, this.size().w < 500]);
    if (row.stubs.dataset.key === key) return;
    row.stubs.dataset.key = key;
    const [most, far] = this.size().w < 500 ? [3, 23] : [STUBS, 30];
    const shown = all.slice(0, Math.max(all.length, each.n_edges ?? 0) > most ? most - 1 : most);
    const rest = all.length - shown.length + Math.max(0, (each.n_edges ?? 0) - all.length);
    const places = shown.map((edge) => ({ edge, text: !named ? "" : edge.name ? short(edge.name, 12) : `port ${edge.port}` }));
    if (rest > 0) places.push({ edge: { role: "host", up: true }, text: `+${rest}` });
    const [middle, room] = angles.length > 0 ? angles : [Math.PI / 2, 2 * Math.PI];
    const step = Math.min(0.62, (0.86 * room) / Math.max(1, places.length));
    const boxes = [];
    row.stubs.replaceChildren(...places.flatMap(({ edge, text }, i) => {
      const angle = middle + step * (i - (places.length - 1) / 2);
      const x = far * Math.cos(angle); const y = far * Math.sin(angle);
      const wide = 6 * text.length;
      const kind = `${edge.role === "outside" ? " outside" : ""}${edge.up === false ? " down" : ""}`;
      const right = Math.cos(angle) > 0.35; const left = Math.cos(angle) < -0.35;
      boxes.push({ x0: x - (left ? wide + 8 : right ? 7 : Math.max(7, wide / 2)), x1: x + (right ? wide + 8 : left ? 7 : Math.max(7, wide / 2)), y0: y - (text && !right && !left && Math.sin(angle) <= 0 ? 19 : 8), y1: y + (text && !right && !left && Math.sin(angle) > 0 ? 19 : 8) });
      const label = s("text", { class: "host-name", x: (x + (right ? 7 : left ? -7 : 0)).toFixed(1), y: (y + (right || left ? 3.5 : Math.sin(angle) > 0 ? 15 : -8)).toFixed(1), "text-anchor": right ? "start" : left ? "end" : "middle" }, text);
      const box = edge.role === "outside" ? s("path", { class: `host-box${kind}`, d: `M${x.toFixed(1)} ${(y - 6).toFixed(1)}l6 6-6 6-6-6Z` }) : s("rect", { class: `host-box${kind}`, x: (x - 4.5).toFixed(1), y: (y - 4.5).toFixed(1), width: 9, height: 9, rx: 2 });
      const title = s("title", null, `${edge.role === "outside" ? "to networks outside" : edge.name ? `host ${short(edge.name, 60)}` : "host port"}${edge.port === undefined ? "" : `, port ${edge.port}`}${edge.up === false ? ", down" : ""}`);
      return [s("path", { class: `host-stub${kind}`, d: `M${(8 * Math.cos(angle)).toFixed(1)} ${(8 * Math.sin(angle)).toFixed(1)}L${x.toFixed(1)} ${y.toFixed(1)}` }), s("g", null, title, box, label)];
    }));
    this.stubs.set(each.name, boxes);
    this.named_for = null;
  }

  rove() {
    for (const node of this.nodes.children) put(node, "tabindex", "-1");
    put(this.element(this.focus), "tabindex", "0");
  }

  element(name) {
    const i = feed.network.switches.findIndex((each) => each.name === name);
    return this.nodes.children[i] ?? this.nodes.firstChild ?? this.svg;
  }

  open(name) { location.hash = route("switch", { name }); }

  select(name) {
    this.selected = name;
    if (name) this.focus = name;
    if (feed.network) this.update();
  }

  selectLink(link) {
    this.link = link && { key: keyOf(link), ends: [link.a.switch, link.b.switch] };
    if (feed.network) this.update();
  }

  /** `hops`: names of switches in order, `end`: delivered, dropped or loops; null for no trace. */
  setTrace(trace) {
    this.trace = trace;
    if (feed.network) this.update();
  }

  onTrace(name) { return this.trace ? (this.trace.hops.includes(name) ? " traced" : " faint") : ""; }

  drawTrace() {
    this.svg.classList.toggle("tracing", this.trace !== null);
    const hops = (this.trace?.hops ?? []).filter((name) => this.positions.has(name)).slice(0, 64);
    const legs = hops.map((name, i) => ({ name, before: hops[i - 1], i, last: i === hops.length - 1 }));
    sync(this.legs, legs.slice(1), (leg) => `${leg.i}`, () => ({ node: s("path", { class: "leg" }) }), (row, leg) => {
      const p = this.positions.get(leg.before);
      const q = this.positions.get(leg.name);
      put(row.node, "d", `M${p.x} ${p.y}L${q.x} ${q.y}`);
    });
    sync(this.badges, legs, (leg) => `${leg.i}`, () => {
      const text = s("text", { "text-anchor": "middle", y: 4 });
      const beside = s("g", null, s("circle", { r: 8.5 }), text);
      return { node: s("g", null, s("g", { class: "loud" }, beside)), beside, text };
    }, (row, leg) => {
      const p = this.positions.get(leg.name);
      put(row.node, "transform", `translate(${p.x} ${p.y})`);
      // Opposite the label, whose place has most room; so the label stays legible.
      put(row.beside, "transform", `translate(${{ s: "0 -19", n: "0 19", e: "-19 0", w: "19 0" }[this.sides.get(leg.name) ?? "s"]})`);
      const end = leg.last ? this.trace.end : null;
      put(row.node, "class", `badge ${end ?? ""}`);
      say(row.text, end === "delivered" ? "✓" : end === "dropped" ? "✕" : end === "loops" ? "↻" : leg.i + 1);
    });
  }

  size() { return { w: this.svg.clientWidth || 600, h: this.svg.clientHeight || 400 }; }

  fit(asked = false) {
    if (this.positions.size === 0) return;
    const { w: full, h: tall } = this.size();
    // On a phone the buttons would cover what is at the right.
    const w = full < 500 ? full - 46 : full;
    const pad = w < 500 ? 14 : 30;
    const named = this.positions.size <= LABELS;
    const all = [...this.positions].map(([name, p]) => ({ p, ...this.reach(name, named) }));
    // Labels keep their size on the screen, so that the scale that lets them in has to be sought.
    let k = 1; let x = 0; let y = 0;
    for (let i = 0; i < 6; i += 1) {
      let x0 = Infinity; let y0 = Infinity; let x1 = -Infinity; let y1 = -Infinity;
      for (const { p, left, right, up, down } of all) { x0 = Math.min(x0, k * p.x - left); x1 = Math.max(x1, k * p.x + right); y0 = Math.min(y0, k * p.y - up); y1 = Math.max(y1, k * p.y + down); }
      x = (w - x0 - x1) / 2; y = (tall - y0 - y1) / 2;
      if (i === 5) break;
      k = Math.max(0.02, Math.min(2.2, k * Math.min((w - 2 * pad) / (x1 - x0), (tall - 2 * (pad + 34)) / (y1 - y0))));
    }
    this.view = { k, x, y };
    if (asked) this.moved = false;
    this.apply();
  }

  /** How far a switch with its label reaches, in pixels. */
  reach(name, named) {
    const side = this.sides.get(name) ?? "s";
    const wide = named ? 7.4 * short(name, 18).length : this.size().w > 700 ? 34 : 0;
    const half = Math.max(12, wide / 2);
    const around = this.stubs.get(name) ?? [];
    const most = (of) => Math.max(0, ...around.map(of));
    return this.reached({ left: side === "w" ? 16 + wide : side === "e" ? 12 : half, right: side === "e" ? 16 + wide : side === "w" ? 12 : half, up: side === "n" ? 28 : 12, down: side === "s" ? 28 : 12 }, { left: most((box) => -box.x0), right: most((box) => box.x1), up: most((box) => -box.y0), down: most((box) => box.y1) });
  }

  reached(a, b) { return { left: Math.max(a.left, b.left), right: Math.max(a.right, b.right), up: Math.max(a.up, b.up), down: Math.max(a.down, b.down) }; }

  apply() {
    const { x, y, k } = this.view;
    put(this.world, "transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${k.toFixed(4)})`);
    this.svg.classList.toggle("zoomed", this.moved);
    if (k === this.scaled && this.named_for === this.shape) return;
    // In a crowd, sizes follow when the zoom rests: to set them on thousands of elements takes longer than a frame.
    clearTimeout(this.naming);
    if (this.positions.size <= CROWD || this.scaled === undefined) this.resize();
    this.naming = setTimeout(() => { this.resize(); this.nameSome(); }, this.positions.size > LABELS ? 120 : 0);
    this.scaled = k;
    this.named_for = this.shape;
  }

  /** Switches and marks keep their size on the screen, unless they would cover each other; in a crowd lines are thin. */
  resize() {
    const { k } = this.view;
    const room = k * (this.room ?? EDGE);
    this.still = Math.max(0.3, Math.min(1, room / 26));
    this.svg.style.setProperty("--still", (this.still / k).toFixed(4));
    this.svg.style.setProperty("--loud", (Math.max(0.75, this.still) / k).toFixed(4));
    this.svg.style.setProperty("--thin", Math.max(0.2, Math.min(1, room / 55, this.sparse ?? 1)).toFixed(3));
  }

  /** Shows the labels that have room: those of switches in trouble first, then of those with most links. */
  nameSome() {
    if (!feed.network) return;
    const size = this.still;
    const { k } = this.view;
    const bins = new Map();
    const each = (box, visit) => { for (let i = Math.floor(box.x0 / 80); i <= Math.floor(box.x1 / 80); i += 1) for (let j = Math.floor(box.y0 / 80); j <= Math.floor(box.y1 / 80); j += 1) if (visit(`${i} ${j}`)) return true; return false; };
    const take = (box) => each(box, (bin) => { if (bins.has(bin)) bins.get(bin).push(box); else bins.set(bin, [box]); return false; });
    const free = (box) => !each(box, (bin) => bins.get(bin)?.some((other) => other.owner !== box.owner && other.x0 < box.x1 && box.x0 < other.x1 && other.y0 < box.y1 && box.y0 < other.y1));
    const around = (owner, cx, cy, r) => ({ owner, x0: cx - r, x1: cx + r, y0: cy - r, y1: cy + r });
    for (const [name, p] of this.positions) take(around(name, k * p.x, k * p.y, 8 * size));
    for (const [name, boxes] of this.stubs) {
      const p = this.positions.get(name);
      if (p) for (const box of boxes) take({ owner: null, x0: k * p.x + box.x0 * size, x1: k * p.x + box.x1 * size, y0: k * p.y + box.y0 * size, y1: k * p.y + box.y1 * size });
    }
    for (const mark of this.marks.children) { const [x, y] = mark.dataset.at.split(" "); take(around(null, k * x, k * y, 8 * Math.max(0.75, size))); }
    // Lines, as points in a row: a label on one is legible, but only the second choice. Not in crowds, where lines are everywhere.
    const lines = [];
    if (this.positions.size <= LABELS) {
      for (const { a, b } of feed.network.links) {
        const p = this.positions.get(a.switch); const q = this.positions.get(b.switch);
        if (!p || !q) continue;
        const n = Math.ceil((k * Math.hypot(p.x - q.x, p.y - q.y)) / 8);
        for (let i = 1; i < n; i += 1) lines.push({ x: k * (p.x + ((q.x - p.x) * i) / n), y: k * (p.y + ((q.y - p.y) * i) / n) });
      }
    }
    const clear = (box) => !lines.some((at) => at.x > box.x0 - 2 && at.x < box.x1 + 2 && at.y > box.y0 - 1 && at.y < box.y1 + 1);
    const rows = [...this.nodes.children].map((node, i) => ({ node, each: feed.network.switches[i] })).filter((row) => row.each);
    const rank = ({ each: one }) => (switchState(one) === "ok" ? 0 : 1e6) + (this.degree.get(one.name) ?? 0);
    for (const { node, each: one } of rows.sort((a, b) => rank(b) - rank(a))) {
      const name = one.name;
      const order = this.order.get(name);
      const boxes = order.map((side) => this.labelBox(name, side, size));
      let best = -1;
      if (size > 0.72) {
        best = boxes.findIndex((box) => free(box) && clear(box));
        if (best < 0) best = boxes.findIndex(free);
      }
      if (best >= 0) {
        take(boxes[best]);
        this.sides.set(name, order[best]);
        this.putLabel(node.querySelector(".label"), name);
      }
      node.classList.toggle("unnamed", best < 0);
    }
  }

  labelBox(name, side, size) {
    const p = this.positions.get(name);
    const wide = 7.2 * short(name, 18).length * size;
    const x0 = this.view.k * p.x + { s: -wide / 2, n: -wide / 2, e: 13 * size, w: -13 * size - wide }[side];
    const y0 = this.view.k * p.y + { s: 11, n: -25, e: -7, w: -7 }[side] * size;
    return { owner: name, x0, x1: x0 + wide, y0, y1: y0 + 14 * size };
  }

  putLabel(label, name) {
    const [x, y, anchor] = { s: [0, 23, "middle"], n: [0, -14, "middle"], e: [14, 4, "start"], w: [-14, 4, "end"] }[this.sides.get(name) ?? "s"];
    put(label, "x", x); put(label, "y", y); put(label, "text-anchor", anchor);
  }

  zoom(by, cx, cy) {
    const { w, h: tall } = this.size();
    const px = cx ?? w / 2; const py = cy ?? tall / 2;
    const k = Math.max(0.02, Math.min(6, this.view.k * by));
    const real = k / this.view.k;
    this.view = { k, x: px - (px - this.view.x) * real, y: py - (py - this.view.y) * real };
    this.moved = true;
    this.soon();
  }

  pan(dx, dy) { this.view.x += dx; this.view.y += dy; this.moved = true; this.soon(); }

  /** Drawn once a frame, however many events there are. */
  soon() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.apply(); });
  }

  /** Brings a switch into sight, if it is out of it. */
  reveal(name) {
    const p = this.positions.get(name);
    if (!p) return;
    const { w, h: tall } = this.size();
    const x = this.view.x + p.x * this.view.k; const y = this.view.y + p.y * this.view.k;
    if (x < 20 || y < 20 || x > w - 20 || y > tall - 20) this.pan(w / 2 - x, tall / 2 - y);
  }

  /** The nearest switch in a direction, those straight ahead preferred. */
  step(dx, dy) {
    const from = this.positions.get(this.focus);
    if (!from) return;
    let best = null; let least = Infinity;
    for (const [name, p] of this.positions) {
      const ahead = (p.x - from.x) * dx + (p.y - from.y) * dy;
      const aside = Math.abs((p.x - from.x) * dy - (p.y - from.y) * dx);
      if (ahead <= 1e-6 || aside > 2.5 * ahead) continue;
      const far = ahead + 2 * aside;
      if (far < least) { least = far; best = name; }
    }
    if (best !== null) this.element(best).focus({ preventScroll: true });
  }

  show(words, event, name) {
    this.tip.replaceChildren(h("strong", null, words.title), h("span", null, words.state), words.hosts && h("span", null, words.hosts), words.carries && h("span", null, words.carries));
    this.tip.hidden = false;
    const r = this.stage.getBoundingClientRect();
    let x; let y;
    if (event) { x = event.clientX - r.left; y = event.clientY - r.top; } else { const p = this.positions.get(name); x = this.view.x + p.x * this.view.k; y = this.view.y + p.y * this.view.k; }
    this.tip.style.left = `${Math.max(4, Math.min(x + 16, r.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${Math.max(4, y + 20 + this.tip.offsetHeight > r.height ? y - this.tip.offsetHeight - 16 : y + 20)}px`;
  }

  hide() { this.tip.hidden = true; }

  listen() {
    const svg = this.svg;
    svg.addEventListener("wheel", (event) => {
      if (innerWidth <= 860 && !event.ctrlKey) return; // the page itself scrolls there
      event.preventDefault();
      const r = svg.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.clientX - r.left, event.clientY - r.top);
    }, { passive: false });
    const fingers = new Map();
    svg.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, event); this.dragged = false; this.started = event; });
    svg.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      if (fingers.size === 1) {
        if (!this.dragged && Math.hypot(event.clientX - this.started.clientX, event.clientY - this.started.clientY) < 5) return;
        if (!this.dragged) { this.dragged = true; this.hide(); svg.setPointerCapture(event.pointerId); }
        this.pan(event.clientX - before.clientX, event.clientY - before.clientY);
      } else if (fingers.size === 2) {
        this.dragged = true;
        const other = [...fingers.values()].find((each) => each.pointerId !== event.pointerId);
        const span = (e) => Math.hypot(e.clientX - other.clientX, e.clientY - other.clientY) || 1;
        const r = svg.getBoundingClientRect();
        this.zoom(span(event) / span(before), (event.clientX + other.clientX) / 2 - r.left, (event.clientY + other.clientY) / 2 - r.top);
      }
      fingers.set(event.pointerId, event);
    });
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, (event) => fingers.delete(event.pointerId));
    svg.addEventListener("dblclick", (event) => { const r = svg.getBoundingClientRect(); this.zoom(1.8, event.clientX - r.left, event.clientY - r.top); });
    svg.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const arrow = arrows[event.key];
      if (arrow && event.shiftKey) this.pan(-60 * arrow[0], -60 * arrow[1]);
      else if (arrow) this.step(...arrow);
      else if (event.key === "Enter" || event.key === " ") this.open(this.focus);
      else if (event.key === "+" || event.key === "=") this.zoom(1.35);
      else if (event.key === "-") this.zoom(1 / 1.35);
      else if (event.key === "0") this.fit(true);
      else if (event.key === "Escape") this.hide();
      else return;
      event.preventDefault();
    });
  }
}

/** Of each switch the middle of the widest angle between two links, and how wide it is. */
function spare(names, drawn, positions) {
  const ways = new Map(names.map((name) => [name, []]));
  for (const link of drawn) {
    if (link.a.switch === link.b.switch) continue;
    for (const [from, to] of [[link.a.switch, link.b.switch], [link.b.switch, link.a.switch]]) {
      const a = positions.get(from); const b = positions.get(to);
      ways.get(from).push(Math.atan2(b.y - a.y, b.x - a.x));
    }
  }
  return new Map([...ways].map(([name, angles]) => {
    if (angles.length === 0) return [name, [-Math.PI / 2, 2 * Math.PI]];
    angles.sort((a, b) => a - b);
    let best = [0, -1];
    angles.forEach((angle, i) => {
      const next = i + 1 < angles.length ? angles[i + 1] : angles[0] + 2 * Math.PI;
      if (next - angle > best[1]) best = [angle + (next - angle) / 2, next - angle];
    });
    return [name, best];
  }));
}

/** The sides of each switch, those first that the fewest links leave by: there a label has most room. Below, if it does not matter. */
function sides(names, drawn, positions, spared) {
  const crowd = new Map(names.map((name) => [name, { s: 0, n: 0.1, e: 0.05, w: 0.15 }]));
  const leave = (from, to) => {
    const a = positions.get(from); const b = positions.get(to);
    const angle = Math.atan2(b.y - a.y, b.x - a.x);
    const room = crowd.get(from);
    for (const [side, way] of [["e", 0], ["s", Math.PI / 2], ["w", Math.PI], ["n", -Math.PI / 2]]) {
      const off = Math.abs(Math.atan2(Math.sin(angle - way), Math.cos(angle - way)));
      if (off < 1) room[side] += 1.2 - off;
    }
  };
  for (const link of drawn) if (link.a.switch !== link.b.switch) { leave(link.a.switch, link.b.switch); leave(link.b.switch, link.a.switch); }
  // Hosts are where most room is.
  const hosted = new Set((feed.network?.switches ?? []).filter((each) => each.edges?.length > 0).map((each) => each.name));
  if (names.length <= LABELS) {
    for (const [name, room] of crowd) {
      const [middle] = spared.get(name) ?? [];
      if (middle === undefined || !hosted.has(name)) continue;
      for (const [side, way] of [["e", 0], ["s", Math.PI / 2], ["w", Math.PI], ["n", -Math.PI / 2]]) {
        if (Math.abs(Math.atan2(Math.sin(middle - way), Math.cos(middle - way))) < 0.9) room[side] += 2;
      }
    }
  }
  return new Map([...crowd].map(([name, room]) => [name, Object.entries(room).sort((a, b) => a[1] - b[1]).map(([side]) => side)]));
}

function legend() {
  const sample = (cls, mark, width) => s("svg", { viewBox: "0 0 34 14", width: 34, height: 14, "aria-hidden": "true" },
    s("g", { class: `link ${cls}` }, wide(s("path", { class: "line", d: "M1 7H33" }), width)), mark && s("g", { class: `mark ${mark}`, transform: "translate(17 7) scale(.8)" }, s("circle", { r: 8 }), s("path", { d: MARKS[mark] })));
  const disc = (cls, mark) => s("svg", { viewBox: "0 0 18 18", width: 16, height: 16, "aria-hidden": "true" },
    s("g", { class: `switch ${cls}`, transform: "translate(9 9) scale(.9)" }, s("circle", { class: "disc", r: 8 }), s("circle", { class: "core", r: 2.6 }), mark && s("path", { class: "sign", d: MARKS[mark] })));
  const edge = (role) => s("svg", { viewBox: "0 0 18 18", width: 16, height: 16, "aria-hidden": "true" }, role === "outside" ? s("path", { class: "host-box outside", d: "M9 3l6 6-6 6-6-6Z" }) : s("rect", { class: "host-box", x: 4.5, y: 4.5, width: 9, height: 9, rx: 2 }));
  const item = (picture, text) => h("li", null, picture, text);
  return h("details", { class: "legend" }, h("summary", null, "Legend"), h("ul", null,
    item(sample("load-2", null, widthOf(125_000)), "1 Mbit/s"), item(sample("load-4", null, widthOf(12_500_000)), "100 Mbit/s"), item(sample("load-5", null, widthOf(1.25e9)), "10 Gbit/s"),
    item(sample("cut", "cut", 2.5), "cut"), item(sample("down", "down", 1.5), "taken down"), item(sample("draining", "draining", 2.5), "draining"), item(sample("found", "found", 2.5), "found"),
    item(edge("host"), "host"), item(edge("outside"), "port to networks outside"), item(disc("ok gateway"), "switch with hosts"), item(disc("ok"), "without hosts"), item(disc("behind", "behind"), "not in step"), item(disc("stuck", "stuck"), "cannot follow"), item(disc("away", "away"), "not connected"), item(disc("drained", "drained"), "drained")));
}

