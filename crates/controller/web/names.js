// Names: found as one types, and the way of one through the network.
import { h, linkTo, put, route, say, sync, table, wide } from "./dom.js";
import { ask, feed, switchState } from "./feed.js";
import { exactly, plural, short, time } from "./units.js";

const LIMIT = 50;
const PAUSE_MS = 90;

export const sorry = (error) => (error.status ? error.message : "The controller cannot be reached. The page asks again as soon as it can.");

/** The results for `q`, or the names of `host`. */
export function namesView(panel, params) {
  let asking = null;
  let timer = 0;
  let failed = false;
  let shown = params;
  const title = h("h1");
  const status = h("p", { class: "note", role: "status" });
  const { node, body } = table("Names found", [["Name and address"], ["Host"], ["At"], ["Learnt", "aside"]], "rows names");
  const box = wide("Names found", node);
  panel.append(h("section", null, h("div", { class: "head" }, title), status, box));

  async function search() {
    asking?.abort();
    const mine = new AbortController();
    asking = mine;
    const { q = "", host } = shown;
    try {
      const answer = await ask("/ui/names", host !== undefined ? { host, limit: LIMIT } : { q, limit: LIMIT }, mine.signal);
      if (asking !== mine) return;
      failed = false;
      draw(answer.names ?? [], answer.more, answer.took_ms);
    } catch (error) {
      if (asking !== mine || error.name === "AbortError") return;
      failed = true;
      say(status, sorry(error));
    } finally {
      if (asking === mine) asking = null;
    }
  }

  function draw(names, more, took_ms) {
    const took = Number.isFinite(took_ms) ? `, in ${took_ms < 0.1 ? "under 0.1" : took_ms < 10 ? took_ms.toFixed(1) : Math.round(took_ms)} ms` : "";
    const what = shown.host !== undefined ? `at host ${short(shown.host, 60)}` : shown.q ? `that ${names.length === 1 && !more ? "begins" : "begin"} with ${short(shown.q, 60)}` : "in order";
    if (shown.host === undefined && shown.q) say(title, names.length === 0 ? "No name found" : "Names found");
    say(status, names.length === 0 ? `No names ${what}.${shown.q ? " A search matches the beginning of names; hosts, and addresses that are not names, are not searched." : ""}` : more ? `The first ${names.length} names ${what}; there are more${took}.` : `${plural(names.length, "name")} ${what}${took}.`);
    box.hidden = names.length === 0;
    sync(body, names, (each) => JSON.stringify([each.name, each.tenant]), (each) => {
      const host = h("td"); const at = h("td"); const ip = h("span", { class: "address" }); const learnt = h("td", { class: "aside" });
      return { node: h("tr", null, h("td", { class: `mono name${each.name.length <= 24 ? " brief-name" : ""}` }, linkTo("name", { name: each.name }, short(each.name, 120), { title: short(each.name, 400) }), ip), host, at, learnt), host, at, ip, learnt };
    }, (row, each) => {
      const key = JSON.stringify([each.host, each.switch, each.port, each.ip, each.learnt_ms]);
      if (row.key === key) return;
      row.key = key;
      row.host.replaceChildren(linkTo("names", { host: each.host }, short(each.host, 40)));
      row.at.replaceChildren(linkTo("switch", { name: each.switch }, `${short(each.switch, 30)}:${each.port}`));
      say(row.ip, each.ip ? short(each.ip, 60) : ""); row.ip.hidden = !each.ip;
      row.learnt.replaceChildren(each.learnt_ms ? time(each.learnt_ms) : "declared");
    });
  }

  body.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const row = event.target.closest("tr");
    const next = event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling;
    if (next) next.querySelector("a").focus();
    else if (event.key === "ArrowUp") document.getElementById("query").focus();
    event.preventDefault();
  });

  function change(next) {
    shown = next;
    say(title, next.host !== undefined ? `Names at ${short(next.host, 40)}` : next.q ? "Names found" : "Names");
    clearTimeout(timer);
    timer = setTimeout(search, next.q ? PAUSE_MS : 0);
  }
  change(params);
  return { title: "Names", update: () => { if (failed) search(); }, change, end: () => { clearTimeout(timer); asking?.abort(); asking = null; } };
}

let chosen = null;

/** One name: where it is, and its way there from a switch. */
export function nameView(panel, params, graph) {
  const { name } = params;
  const stop = new AbortController();
  let where = null;
  let busy = false;
  let drawn = "";
  const facts = h("dl", { class: "facts" });
  const note = h("p", { class: "note", role: "status" }, "Searching …");
  const select = h("select", { id: "from" });
  const verdict = h("p", { class: "verdict", role: "status" });
  const hops = h("ol", { class: "hops" });
  const several = h("p", { class: "note" }, "Where a switch has several paths, each flow takes one, and only the switch knows which: the hops after it are those of the first path.");
  several.hidden = true;
  const way = h("section", null, h("h2", null, "Its path through the network"), h("p", { class: "row" }, h("label", { for: "from" }, "from switch "), select), verdict, hops, several);
  panel.append(h("section", null, h("p", { class: "crumb" }, linkTo("names", {}, "Names")), h("h1", { class: "mono long" }, short(name, 300)), note, facts), way);
  facts.hidden = true;

  select.addEventListener("change", () => {
    chosen = select.value;
    history.replaceState(null, "", route("name", { name, from: chosen }));
    trace();
  });

  function options() {
    const names = feed.network.switches.map((each) => each.name);
    const key = JSON.stringify(names);
    if (select.dataset.key !== key) {
      select.dataset.key = key;
      select.replaceChildren(...names.map((each) => h("option", { value: each }, short(each, 60))));
    }
    if (!names.includes(chosen)) {
      const far = feed.network.switches.find((each) => each.hosts > 0 && each.name !== where?.switch && switchState(each) === "ok");
      chosen = names.includes(params.from) ? params.from : (far?.name ?? names[0]);
    }
    if (chosen !== undefined) select.value = chosen;
  }

  const fact = (term, ...value) => h("div", null, h("dt", null, term), h("dd", null, ...value));
  async function find() {
    try {
      const { names } = await ask("/ui/names", { q: name, limit: 5 }, stop.signal);
      where = names.find((each) => each.name === name) ?? null;
      note.hidden = where !== null;
      facts.hidden = where === null;
      if (where === null) say(note, "No host has this name. Frames to it are dropped where they enter, as alien.");
      else {
        const key = JSON.stringify(where);
        if (facts.dataset.key !== key) {
          facts.dataset.key = key;
          facts.replaceChildren(fact("Host", linkTo("names", { host: where.host }, short(where.host, 80))),
            fact("Attached at", linkTo("switch", { name: where.switch }, short(where.switch, 60)), ` port ${where.port}`),
            where.ip ? fact("IP address", h("span", { class: "mono" }, where.ip)) : null, where.tenant ? fact("Tenant", where.tenant) : null,
            fact("Known", where.learnt_ms ? h("span", { title: exactly(where.learnt_ms) }, "learnt ", time(where.learnt_ms)) : "declared"));
          for (const empty of [...facts.childNodes]) if (empty.nodeType === 3) empty.remove();
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") { note.hidden = false; say(note, sorry(error)); }
    }
  }

  async function trace() {
    options();
    if (chosen === undefined) return;
    const from = chosen;
    try {
      const answer = await ask("/ui/trace", { name, from }, stop.signal);
      if (stop.signal.aborted || from !== chosen) return;
      const key = JSON.stringify([from, answer]);
      if (key === drawn) return;
      drawn = key;
      const end = ["delivered", "dropped", "loops"].includes(answer.end) ? answer.end : "dropped";
      verdict.className = `verdict ${end}`;
      verdict.replaceChildren(h("span", { class: "chip" }, { delivered: "✓ delivered", dropped: "✕ dropped", loops: "↻ loops" }[end]), h("span", null, short(answer.sentence, 500)));
      hops.replaceChildren(...answer.hops.slice(0, 64).map((hop) => h("li", null, linkTo("switch", { name: hop.switch }, short(hop.switch, 60)), h("span", null, short(hop.does, 900)), hop.action ? h("span", { class: "mono", title: "the expected entry for this name at the switch: the value in its FIB, and its action" }, `value ${hop.value}: ${short(hop.action, 200)}`) : null)));
      several.hidden = !answer.hops.some((hop) => /^ports:/.test(hop.action ?? ""));
      graph.setTrace({ hops: answer.hops.map((hop) => hop.switch), end });
    } catch (error) {
      if (error.name === "AbortError") return;
      drawn = "";
      verdict.className = "verdict";
      say(verdict, sorry(error));
      hops.replaceChildren();
      several.hidden = true;
      graph.setTrace(null);
    }
  }

  async function update() {
    if (busy || !feed.network) return;
    busy = true;
    await find();
    if (!stop.signal.aborted) await trace();
    busy = false;
  }
  if (params.from) chosen = params.from;
  update();
  return { title: short(name, 60), update, end: () => { stop.abort(); graph.setTrace(null); } };
}

/** The field in the header: what is typed becomes the address of the view, which asks. */
export function searchField(form, field) {
  const go = () => {
    const to = route("names", { q: field.value });
    if (location.hash.startsWith("#/names")) { history.replaceState(null, "", to); dispatchEvent(new HashChangeEvent("hashchange")); } else location.hash = to;
  };
  field.addEventListener("input", go);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const first = document.querySelector("table.names tbody a");
    if (first && location.hash === route("names", { q: field.value })) first.focus(); else go();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { document.querySelector("table.names tbody a")?.focus(); event.preventDefault(); }
    if (event.key === "Escape") { if (field.value) { field.value = ""; go(); } else field.blur(); event.preventDefault(); }
  });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) { field.focus(); field.select(); event.preventDefault(); }
  });
  put(field, "aria-keyshortcuts", "/");
}
