// One link, and the curves of what was carried.
import { h, linkTo, put, s, say, sync, word } from "./dom.js";
import { endOf, feed, keyOf, linkState, LINK_WORDS, SAMPLES } from "./feed.js";
import { control } from "./attention.js";
import { bits, short } from "./units.js";

/** A curve of at most SAMPLES bytes a second, nulls left out. */
export function sparkline(what) {
  const area = s("path", { class: "area" });
  const curve = s("path", { class: "curve" });
  const node = s("svg", { class: "spark", viewBox: `0 0 ${SAMPLES - 1} 20`, preserveAspectRatio: "none", role: "img", "aria-label": what }, area, curve);
  const update = (samples) => {
    const most = Math.max(...samples.filter((each) => each !== null), 1);
    const points = samples.map((each, i) => (each === null ? null : `${SAMPLES - samples.length + i} ${(19 - (18 * each) / most).toFixed(2)}`)).filter(Boolean);
    put(curve, "d", points.length > 1 ? `M${points.join("L")}` : "");
    put(area, "d", points.length > 1 ? `M${points[0].split(" ")[0]} 20L${points.join("L")}L${points.at(-1).split(" ")[0]} 20Z` : "");
    if (points.length > 1) node.removeAttribute("hidden"); else node.setAttribute("hidden", "");
  };
  return { node, update };
}

/** Points of a curve: those of an hour. */
const POINTS = 120;

/**
 * A curve of an hour with its axes: bytes a second. `ask(signal)` gives what the controller has kept, { every_s, bytes_s }, the oldest
 * first, null where nothing was told; it is asked again for each new point.
 */
export function curve(what, past) {
  const area = s("path", { class: "area" });
  const line = s("path", { class: "curve" });
  const grid = s("path", { class: "grid", d: `M0 10H${POINTS - 1}M${(POINTS - 1) / 2} 0V20` });
  const svg = s("svg", { class: "spark", viewBox: `0 0 ${POINTS - 1} 20`, preserveAspectRatio: "none", role: "img", "aria-label": what }, grid, area, line);
  const most = h("span", { class: "most" });
  const node = h("div", { class: "curve-box" }, svg, most, h("span", { class: "least" }, "0"), h("div", { class: "hours" }, h("span", null, "1 h ago"), h("span", null, "30 min"), h("span", null, "now")));
  node.hidden = true;
  const stop = new AbortController();
  let timer = 0;
  async function again() {
    let next = 30_000;
    try {
      const { every_s, bytes_s } = await past(stop.signal);
      next = every_s * 1000;
      draw(bytes_s.slice(-POINTS));
    } catch (error) { if (error.name === "AbortError") return; }
    timer = setTimeout(again, next);
  }
  function draw(samples) {
    const known = samples.filter((each) => each !== null);
    const top = Math.max(...known, 1);
    const at = (i) => POINTS - samples.length + i;
    let d = ""; let filled = ""; let run = [];
    // Where nothing was told the curve has a gap.
    const close = () => {
      if (run.length > 0) {
        const points = run.length > 1 ? run : [run[0], { x: Math.min(POINTS - 1, run[0].x + 0.5), y: run[0].y }];
        const text = points.map(({ x, y }) => `${x} ${y.toFixed(2)}`).join("L");
        d += `M${text}`;
        filled += `M${points[0].x} 20L${text}L${points.at(-1).x} 20Z`;
      }
      run = [];
    };
    samples.forEach((each, i) => { if (each === null) close(); else run.push({ x: at(i), y: 19.5 - (18.5 * each) / top }); });
    close();
    put(line, "d", d); put(area, "d", filled);
    say(most, bits(top === 1 && !known.some((each) => each > 0) ? 0 : top));
    put(svg, "aria-label", `${what}: at most ${bits(top)} in the last hour`);
    node.hidden = known.length === 0;
  }
  again();
  return { node, end: () => { stop.abort(); clearTimeout(timer); } };
}

const ABOUT = {
  up: ["good", "✓", "It carries frames."],
  cut: ["bad", "✕", "Its switches report that it carries no frames: hellos are missing, or a carrier is lost. Check the cable and both ports; the link recovers by itself."],
  down: ["info", "–", "An operator took it out of use."],
  draining: ["info", "↓", "Paths leave it step by step, and no frame is lost."],
};

export function linkView(panel, params, graph) {
  const chip = h("p", { class: "chips" });
  const title = h("h1", { class: "long" });
  const facts = h("dl", { class: "facts" });
  const acts = h("div", { class: "row" });
  const events = h("p", { class: "note" });
  panel.append(h("section", null, h("p", { class: "crumb" }, linkTo("inventory", {}, "Links")), title, chip, facts, acts, events));
  let marked = null;
  const is = (end) => end.switch === params.a && String(end.port) === params.port;
  const update = () => {
    if (!feed.network) return;
    const link = feed.network.links.find((each) => is(each.a) || is(each.b));
    say(title, link ? `${short(endOf(link.a), 60)} – ${short(endOf(link.b), 60)}` : `${short(params.a, 60)}:${params.port}`);
    facts.hidden = acts.hidden = !link;
    say(events, link ? "" : "There is no link at this port.");
    if (!link) { chip.replaceChildren(); return; }
    const state = linkState(link);
    const key = JSON.stringify([keyOf(link), state, feed.network.may_change]);
    if (chip.dataset.key !== key) {
      chip.dataset.key = key;
      const [level, sign, sentence] = ABOUT[state];
      chip.replaceChildren(h("span", { class: `chip ${level}` }, `${sign} ${LINK_WORDS[state]}`), h("span", { class: "text" }, sentence));
      const end = word(endOf(link.a));
      acts.replaceChildren(state === "up" || state === "cut"
        ? control("Drain", `Drain ${short(endOf(link.a))}`, "Paths leave the link step by step, and no frame is lost.", { do: "link.drain", end: link.a }, `fibula link drain ${end}`)
        : control("Take back", `Take ${short(endOf(link.a))} back`, "Paths may lead over the link again.", { do: "link.undrain", end: link.a }, `fibula link undrain ${end}`));
    }
    const rows = [["Ends", [linkTo("switch", { name: link.a.switch }, short(link.a.switch)), ` port ${link.a.port}, `, linkTo("switch", { name: link.b.switch }, short(link.b.switch)), ` port ${link.b.port}`]],
      [`${short(link.a.switch, 20)} → ${short(link.b.switch, 20)}`, link.bytes_s ? bits(link.bytes_s[0]) : "–"], [`${short(link.b.switch, 20)} → ${short(link.a.switch, 20)}`, link.bytes_s ? bits(link.bytes_s[1]) : "–"],
      ["Cost", link.raised > 0 ? `${link.cost}, raised by ${link.raised}` : String(link.cost)], ["Weight", String(link.weight ?? 1)]];
    sync(facts, rows, ([term]) => term, ([term, value]) => { const dd = h("dd", null, ...(Array.isArray(value) ? value : [])); return { node: h("div", null, h("dt", null, term), dd), dd }; },
      (row, [, value]) => { if (!Array.isArray(value)) say(row.dd, value); });
    if (marked !== keyOf(link)) { marked = keyOf(link); graph.selectLink(link); }
  };
  update();
  return { title: "Link", update, end: () => graph.selectLink(null) };
}
