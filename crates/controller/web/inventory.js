// All switches and links as tables: the drawing in words, and quicker than it where there are hundreds.
import { h, linkTo, put, route, say, sync, table, wide } from "./dom.js";
import { endOf, feed, keyOf, linkState, lost, LINK_WORDS, switchState, SWITCH_WORDS } from "./feed.js";
import { bits, bytes, count, natural, rate, short } from "./units.js";
import { LEVELS, stateChip } from "./switch.js";

const LINK_LEVELS = { up: "good", cut: "bad", down: "info", draining: "info", found: "warning" };
const ORDER = { bad: 0, warning: 1, info: 2, good: 3 };
const PAGE = 200;

export function inventoryView(panel, params) {
  let most = { switches: PAGE, links: PAGE };
  const filter = h("input", { type: "search", id: "filter", placeholder: "Filter by name", autocomplete: "off", spellcheck: "false" });
  filter.value = params.filter ?? "";
  const only = h("input", { type: "checkbox", id: "only" });
  only.checked = params.only === "attention";
  const part = (title, heads) => {
    const { node, body } = table(title, heads, "rows");
    const tally = h("span", { class: "note" });
    const more = h("button", { type: "button", class: "plain small" }, "Show more");
    return { tally, body, more, node: h("section", null, h("div", { class: "head" }, h("h2", null, title), tally), wide(title, node), more) };
  };
  const switches = part("Switches", [["State"], ["Switch"], ["Hosts", "num off-phone"], ["In", "num"], ["Out", "num"], ["Frames/s in", "num aside"], ["Drops/s", "num"], ["Messages", "num aside"], ["Sent to it", "num aside"]]);
  const links = part("Links", [["State"], ["From"], ["To"], ["There", "num"], ["Back", "num"], ["Cost", "num aside"], ["Weight", "num aside"]]);
  panel.append(h("div", { class: "head bar" }, h("h1", null, "Switches and links"), h("label", { class: "hidden", for: "filter" }, "Filter by name"), filter, h("label", { for: "only" }, only, "only problems")), switches.node, links.node);
  for (const [key, each] of [["switches", switches], ["links", links]]) each.more.addEventListener("click", () => { most = { ...most, [key]: most[key] + 500 }; draw(); });
  // In the address, so that one who looks at a switch and comes back finds what he had chosen.
  const choose = () => {
    history.replaceState(null, "", route("inventory", { filter: filter.value, only: only.checked ? "attention" : "" }));
    draw();
  };
  filter.addEventListener("input", choose);
  only.addEventListener("change", choose);

  function fillRows({ body, tally, more }, all, limit, keyFor, classes, write) {
    const shown = all.slice(0, limit);
    say(tally, shown.length < all.length ? `the first ${count(shown.length)} of ${count(all.length)}` : all.length === 0 && (filter.value || only.checked) ? "none of these" : count(all.length));
    more.hidden = shown.length === all.length;
    sync(body, shown, keyFor, () => { const cells = classes.map((cls) => h("td", { class: cls })); return { node: h("tr", null, cells), cells, key: "" }; }, write);
  }

  function draw() {
    const { network } = feed;
    if (!network) return;
    const text = filter.value.toLowerCase();
    const has = (...parts) => !text || parts.some((each) => each.toLowerCase().includes(text));
    const listed = [...network.switches.map((each) => ({ ...each, state: switchState(each) })),
      ...network.pending.map((each) => ({ ...each, state: "pending", hosts: null, counters: null }))]
      .map((each) => ({ ...each, level: each.state === "pending" ? "warning" : LEVELS[each.state] }))
      .filter((each) => has(each.name) && (!only.checked || each.level !== "good"))
      .sort((a, b) => ORDER[a.level] - ORDER[b.level] || natural(a.name, b.name));
    fillRows(switches, listed, most.switches, (each) => `${each.state === "pending"} ${each.name}`, ["", "", "num off-phone", "num", "num", "num aside", "num", "num aside", "num aside"], (row, each) => {
      const [state, name, hosts, inb, outb, inf, drops, sent, size] = row.cells;
      const key = `${each.state} ${each.name}`;
      if (row.key !== key) {
        row.key = key;
        state.replaceChildren(stateChip(each.level, SWITCH_WORDS[each.state].split(":")[0]));
        name.replaceChildren(linkTo("switch", { name: each.name }, short(each.name, 60)));
      }
      const c = each.counters;
      say(hosts, each.hosts === null ? "–" : count(each.hosts)); say(inb, c ? bits(c.bytes_in_s) : "–"); say(outb, c ? bits(c.bytes_out_s) : "–");
      say(inf, c ? rate(c.frames_in_s) : "–"); say(drops, c ? rate(lost(c)) : "–"); put(drops, "class", `num${lost(c) > 0 ? " hot" : ""}`);
      say(sent, each.sent_messages === undefined ? "–" : `${count(each.acknowledged_messages)} / ${count(each.sent_messages)}`); say(size, each.sent_bytes === undefined ? "–" : bytes(each.sent_bytes));
    });
    const cables = [...network.links.map((link) => ({ ...link, state: linkState(link) })), ...network.found.map((link) => ({ ...link, state: "found", bytes_s: null }))]
      .filter((link) => has(endOf(link.a), endOf(link.b)) && (!only.checked || link.state !== "up"))
      .sort((a, b) => ORDER[LINK_LEVELS[a.state]] - ORDER[LINK_LEVELS[b.state]] || natural(endOf(a.a), endOf(b.a)));
    fillRows(links, cables, most.links, (link) => `${link.state === "found"} ${keyOf(link)}`, ["", "", "", "num", "num", "num aside", "num aside"], (row, link) => {
      const [state, from, to, there, back, cost, weight] = row.cells;
      if (row.key !== link.state) {
        row.key = link.state;
        const level = LINK_LEVELS[link.state];
        state.replaceChildren(stateChip(level, LINK_WORDS[link.state]));
        from.replaceChildren(link.state === "found" ? short(endOf(link.a), 60) : linkTo("link", { a: link.a.switch, port: link.a.port }, short(endOf(link.a), 60)));
        to.replaceChildren(linkTo("switch", { name: link.b.switch }, short(endOf(link.b), 60)));
      }
      say(there, link.bytes_s ? bits(link.bytes_s[0]) : "–"); say(back, link.bytes_s ? bits(link.bytes_s[1]) : "–"); say(cost, link.cost ?? "–"); say(weight, link.weight ?? "–");
    });
  }
  draw();
  return { title: "Switches and links", full: true, update: draw };
}
