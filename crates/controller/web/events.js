// What happened, newest first: at most the last 1,000 events, by kind, and a pause that keeps the list still while one reads.
import { h, put, say, sync, tell } from "./dom.js";
import { MAX_EVENTS, feed } from "./feed.js";
import { clock, count, exactly, plural, time, zone } from "./units.js";

const KINDS = [["link", "Links"], ["switch", "Switches"], ["host", "Hosts"], ["names", "Names"], ["controller", "Controller"]];
const SIGNS = { bad: "✕", warning: "!", info: "·", good: "✓" };
const WORDS = { bad: "bad", warning: "warning", info: "information", good: "good" };

export function eventRow(event) {
  const when = event.at_ms === null ? h("span", { class: "clock" }, "") : h("span", { class: "clock", title: exactly(event.at_ms) }, clock(event.at_ms));
  const text = h("span", { class: "text" });
  tell(text, event.text);
  const node = h("li", { class: `event ${event.level}`, "data-seq": event.seq },
    h("span", { class: "sign", role: "img", "aria-label": WORDS[event.level] }, SIGNS[event.level]), when,
    h("span", { class: "kind" }, event.kind), h("span", { class: "subject" }, event.subject), text,
    event.at_ms !== null && h("span", { class: "ago" }, time(event.at_ms)));
  return { node };
}

export function eventsView(panel, params) {
  let hidden = new Set((params.without ?? "").split(",").filter(Boolean));
  let frozen = null;
  let drawing = 0;
  const list = h("ul", { class: "events" });
  const none = h("p", { class: "note" });
  const tally = h("span", { class: "note" });
  const more = h("p", { class: "note", role: "status" });
  const pause = h("button", { type: "button", class: "small", "aria-pressed": "false" }, "Pause");
  const filters = h("div", { class: "filters", role: "group", "aria-label": "Kinds of events" }, KINDS.map(([kind, text]) => {
    const box = h("input", { type: "checkbox", value: kind });
    box.checked = !hidden.has(kind);
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(kind); else hidden.add(kind);
      history.replaceState(null, "", hidden.size ? `#/events?without=${[...hidden].join(",")}` : "#/events");
      draw();
    });
    return h("label", null, box, text);
  }));
  panel.append(h("section", null, h("div", { class: "head" }, h("h1", null, "Events"), tally, pause), filters, h("p", { class: "note" }, `Times are in the zone of this browser: ${zone()}.`), more, none, list));

  pause.addEventListener("click", () => {
    frozen = frozen ? null : { events: feed.events, at: feed.n_events };
    put(pause, "aria-pressed", String(frozen !== null));
    say(pause, frozen ? "Go on" : "Pause");
    draw();
  });

  function draw() {
    drawing = 0;
    const all = frozen ? frozen.events : feed.events;
    const shown = all.filter((event) => !hidden.has(event.kind)).reverse();
    sync(list, shown, (event) => String(event.key), eventRow);
    none.hidden = shown.length > 0;
    say(none, all.length > 0 ? "No events of the chosen kinds." : feed.streaming ? "Nothing has happened since the controller started." : "Not connected to the controller's events.");
    say(tally, all.length >= MAX_EVENTS ? `the last ${count(MAX_EVENTS)}` : plural(all.length, "event"));
    const waiting = frozen ? feed.n_events - frozen.at : 0;
    more.hidden = !frozen;
    say(more, frozen ? `Paused. ${waiting > 0 ? `${count(waiting)} newer` : "Nothing newer"}.` : "");
  }
  // A flood is drawn a few times a second, not once an event.
  const soon = () => { if (!drawing) drawing = setTimeout(draw, 150); };
  draw();
  return { title: "Events", full: true, update() {}, events: soon, phase: soon, end: () => clearTimeout(drawing) };
}
