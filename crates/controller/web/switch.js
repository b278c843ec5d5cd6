// One switch: its ports and what they carry, why it drops what it drops, what its tables take.
import { h, linkTo, put, say, sync, table, tell, wide, word } from "./dom.js";
import { ask, endOf, feed, linkState, lost, LINK_WORDS, switchState, SWITCH_WORDS } from "./feed.js";
import { control } from "./attention.js";
import { sorry } from "./names.js";
import { curve } from "./link.js";
import { bits, bytes, count, plural, rate, short } from "./units.js";

export const LEVELS = { ok: "good", drained: "info", behind: "warning", stuck: "bad", away: "bad" };
export const chip = (level, text) => h("span", { class: `chip ${level}` }, text);
/** A state in a table: where there is little room, its sign is seen, and its word is read aloud. */
export const stateChip = (level, text) => h("span", { class: `chip ${level}`, title: text }, `${SIGN[level]} `, h("span", { class: "off-phone-text" }, text));
export const SIGN = { good: "✓", info: "i", warning: "!", bad: "✕" };

export function switchView(panel, params, graph) {
  const { name } = params;
  const stop = new AbortController();
  let busy = false;
  const states = h("p", { class: "chips" });
  const acts = h("div", { class: "row" });
  const note = h("p", { class: "note", role: "status" }, "Asking …");
  const figures = h("dl", { class: "facts" });
  const traffic = curve("traffic that entered at all its ports", (signal) => ask("/ui/history", { name }, signal));
  const ports = table("Ports", [["Port", "num"], ["Interface"], ["To"], ["In", "num"], ["Out", "num"], ["Frames/s in", "num aside"], ["Frames/s out", "num aside"]], "rows");
  const portBox = wide("Ports", ports.node);
  const drops = h("ul", { class: "drops" });
  const expected = h("ul", { class: "drops" });
  const asItShould = h("details", { class: "fold" }, h("summary", null), expected);
  const noDrops = h("p", { class: "note" });
  const hosts = h("ul", { class: "list" });
  const parts = h("ul", { class: "bars" });
  const memoryNote = h("p", { class: "note" });
  const section = (title, ...inside) => h("section", null, h("h2", null, title), ...inside);
  const hostSection = section("Hosts", hosts);
  const body = h("div", null, section("Ports", portBox), section("Dropped frames", noDrops, drops, asItShould), section("Tables and memory", memoryNote, parts), hostSection);
  body.hidden = true;
  panel.append(h("section", null, h("p", { class: "crumb" }, linkTo("inventory", {}, "Switches")), h("h1", { class: "long" }, short(name, 120)), states, note, figures, traffic.node, acts), body);
  graph.select(name);

  function draw() {
    const each = feed.network.switches.find((one) => one.name === name);
    if (!each) {
      const pending = feed.network.pending.find((one) => one.name === name);
      states.replaceChildren();
      say(note, pending ? "It is waiting to be accepted." : "The controller knows no switch with this name.");
      note.hidden = false; body.hidden = true; figures.hidden = true; acts.hidden = true; traffic.node.hidden = true;
      return false;
    }
    figures.hidden = false; acts.hidden = false;
    const state = switchState(each);
    const level = LEVELS[state];
    const key = JSON.stringify([state, each.cannot_follow, each.transit, feed.network.may_change]);
    if (states.dataset.key !== key) {
      states.dataset.key = key;
      states.replaceChildren(chip(level, `${SIGN[level]} ${SWITCH_WORDS[state]}`), each.transit === false && state !== "drained" ? chip("info", "drained") : "",
        each.cannot_follow ? h("span", { class: "text" }, short(each.cannot_follow, 400)) : "");
      acts.replaceChildren(each.transit === false
        ? control("Undrain", `Undrain ${short(name)}`, "Paths of other switches may lead through it again.", { do: "switch.undrain", name }, `fibula switch undrain ${word(name)}`)
        : control("Drain", `Drain ${short(name)}`, "Paths of other switches leave it step by step; no frame is lost. Hosts at its own ports stay reachable.", { do: "switch.drain", name }, `fibula switch drain ${word(name)}`));
    }
    const c = each.counters;
    const facts = [["In", c ? bits(c.bytes_in_s) : "–"], ["Out", c ? bits(c.bytes_out_s) : "–"], ["Drops", c ? `${rate(lost(c))} frames/s` : "–"],
      ["Messages", `${count(each.acknowledged_messages)} of ${count(each.sent_messages)}`], ["Sent to it", bytes(each.sent_bytes)], ["Counters", c ? `${(c.age_ms / 1000).toFixed(1)} s old` : "not reported"]];
    sync(figures, facts, ([term]) => term, ([term]) => { const value = h("dd"); return { node: h("div", null, h("dt", null, term), value), value }; }, (row, [, value]) => say(row.value, value));
    return true;
  }

  async function update() {
    if (!feed.network || !draw() || busy) return;
    busy = true;
    try {
      details(await ask("/ui/switch", { name }, stop.signal));
      body.hidden = false;
      note.hidden = true;
    } catch (error) {
      if (error.name !== "AbortError") { note.hidden = false; say(note, sorry(error)); }
    } finally { busy = false; }
  }

  function details(answer) {
    const c = answer.counters;
    const beside = new Map();
    for (const link of feed.network.links) {
      if (link.a.switch === name) beside.set(link.a.port, { other: link.b, link });
      if (link.b.switch === name) beside.set(link.b.port, { other: link.a, link });
    }
    const at = new Map((answer.hosts ?? []).map((host) => [host.port, host]));
    const rows = c ? c.ports : [...new Set([...beside.keys(), ...at.keys()])].sort((a, b) => a - b).map((port) => ({ port, name: "–" }));
    sync(ports.body, rows, (port) => String(port.port), () => {
      const cells = ["num", "mono", "", "num", "num", "num aside", "num aside"].map((cls) => h("td", { class: cls }));
      return { node: h("tr", null, cells), cells };
    }, ({ cells }, port) => {
      const [n, face, to, inb, outb, inf, outf] = cells;
      say(n, port.port); say(face, short(port.name, 30));
      const near = beside.get(port.port); const host = at.get(port.port);
      const state = near && linkState(near.link);
      const key = JSON.stringify([near?.other, state, host?.name, port.kind, port.device_there]);
      if (to.dataset.key !== key) {
        to.dataset.key = key;
        to.replaceChildren(near ? linkTo("link", { a: name, port: port.port }, short(endOf(near.other), 40)) : host ? linkTo("names", { host: host.name }, short(host.name, 40)) : h("span", { class: "dim" }, short(port.kind ?? "", 20)));
        // What it says itself, in LLDP.
        put(to, "title", port.device_there ? `calls itself ${short(port.device_there, 60)}` : null);
        if (near && state !== "up") to.append(" ", chip(state === "cut" ? "bad" : "info", `${state === "cut" ? "✕ " : ""}${LINK_WORDS[state]}`));
      }
      say(inb, bits(port.bytes_in_s)); say(outb, bits(port.bytes_out_s)); say(inf, rate(port.frames_in_s)); say(outf, rate(port.frames_out_s));
      const lost = port.hellos_lost > 0 ? `; ${plural(port.hellos_lost, "hello")} lost` : "";
      put(inb, "title", port.bytes_in === undefined ? null : `${count(port.frames_in)} frames, ${bytes(port.bytes_in)} in all${lost}`);
      put(outb, "title", port.bytes_out === undefined ? null : `${count(port.frames_out)} frames, ${bytes(port.bytes_out)} in all`);
    });
    portBox.hidden = rows.length === 0;
    const dropped = (c?.drops ?? []).filter((drop) => drop.total > 0).sort((a, b) => b.a_second - a.a_second || b.total - a.total);
    const [real, normal] = [false, true].map((is) => dropped.filter((drop) => Boolean(drop.expected) === is));
    noDrops.hidden = real.length > 0;
    say(noDrops, c ? "Since it started, it has dropped no frames that would be missed." : "It has not reported its counters.");
    for (const [list, some] of [[drops, real], [expected, normal]]) {
      sync(list, some, (drop) => drop.reason, (drop) => {
        const now = h("span", { class: "value" }); const total = h("span", { class: "dim" }); const why = h("p", { class: "why" });
        tell(why, short(drop.why, 600));
        return { node: h("li", null, h("p", { class: "head" }, h("code", null, short(drop.reason, 40)), now, total), why), now, total };
      }, (row, drop) => { say(row.now, `${rate(drop.a_second)} frames/s`); put(row.now, "class", `value${drop.a_second > 0 && list === drops ? " hot" : ""}`); say(row.total, `${count(drop.total)} in all`); });
    }
    asItShould.hidden = normal.length === 0;
    say(asItShould.firstChild, `${plural(normal.reduce((sum, drop) => sum + drop.total, 0), "frame")} dropped as they should be, for ${plural(normal.length, "reason")}`);
    const memory = answer.memory;
    say(memoryNote, memory ? `${bytes(memory.resident_bytes)} resident, ${plural(memory.names, "name")}.` : "It has not reported the memory of its tables.");
    const sized = (memory?.parts ?? []).slice().sort((a, b) => b.bytes - a.bytes);
    sync(parts, sized, (part) => part.part, (part) => {
      const value = h("span", { class: "value" }); const fill = h("span", { class: "fill" });
      return { node: h("li", null, h("span", null, short(part.part, 40).replaceAll("_", " ")), value, h("span", { class: "track", "aria-hidden": "true" }, fill)), value, fill };
    }, (row, part) => {
      say(row.value, memory.names > 0 ? `${bytes(part.bytes)}, ${(part.bytes / memory.names).toFixed(1)} B a name` : bytes(part.bytes));
      row.fill.style.width = `${(100 * part.bytes) / (memory.resident_bytes || 1)}%`;
    });
    hostSection.hidden = at.size === 0;
    sync(hosts, answer.hosts ?? [], (host) => `${host.name} ${host.port}`, (host) => {
      const learnt = h("span", { class: "dim" });
      return { node: h("li", null, linkTo("names", { host: host.name }, short(host.name, 60)), h("span", { class: "dim" }, ` port ${host.port}`), learnt), learnt };
    }, (row, host) => say(row.learnt, host.learnt > 0 ? `, ${count(host.learnt)} learnt` : ""));
  }

  update();
  return { title: short(name, 60), update, end: () => { stop.abort(); traffic.end(); graph.select(null); } };
}
