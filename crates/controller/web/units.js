// Numbers as people read them: SI units for rates, binary ones for memory, times relative with the exact one as title.
import { h, say, visible } from "./dom.js";

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const zoned = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", timeZoneName: "shortOffset" });
const clocks = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** The order in which people look for names: s2 before s10. */
export const natural = new Intl.Collator("en-GB", { numeric: true }).compare;

export const count = (n) => whole.format(n ?? 0);
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

function scaled(value, step, units) {
  let size = Math.abs(value);
  let unit = 0;
  while (size >= step * 0.9995 && unit < units.length - 1) { size /= step; unit += 1; }
  const digits = unit === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return `${size.toFixed(digits)} ${units[unit]}`;
}

/** Bytes a second as bits a second. */
export const bits = (bytes_s) => (Number.isFinite(bytes_s) ? scaled(bytes_s * 8, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]) : "–");
export const bytes = (n) => (Number.isFinite(n) ? scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]) : "–");

/** Things a second, with few digits. */
export function rate(n) {
  if (!Number.isFinite(n)) return "–";
  if (n === 0) return "0";
  if (n < 0.01) return "< 0.01";
  if (n < 10) return n.toFixed(n < 1 ? 2 : 1);
  return n < 99_999.5 ? whole.format(n) : scaled(n, 1000, ["", "k", "M", "G"]);
}
export const frames = (n) => (Number.isFinite(n) ? `${rate(n)} frames/s` : "–");

export function span(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Where the clock of this browser is, and how far that is from UTC: "Europe/Berlin, GMT+1". */
export function zone() {
  const { timeZone } = zoned.resolvedOptions();
  const offset = zoned.formatToParts(now()).find((part) => part.type === "timeZoneName").value;
  return ["UTC", "GMT"].includes(timeZone) ? timeZone : `${timeZone}, ${offset}`;
}

let skew_ms = 0;
/** The controller's clock, as far as it told us. */
export const setClock = (now_ms) => { if (Number.isFinite(now_ms)) skew_ms = now_ms - Date.now(); };
export const now = () => Date.now() + skew_ms;
export const clock = (ms) => clocks.format(ms);
export const exactly = (ms) => { try { return exact.format(ms); } catch { return "an unknown time"; } };

export function ago(ms) {
  const seconds = (now() - ms) / 1000;
  return seconds < 1.5 ? "now" : `${span(seconds)} ago`;
}

/** A time that goes on by itself: `ticks` brings all of them along. */
export function time(ms) {
  let iso;
  try { iso = new Date(ms).toISOString(); } catch { return h("span", null, "an unknown time"); }
  return h("time", { datetime: iso, title: exactly(ms), "data-ms": ms }, ago(ms));
}

export function ticks() {
  for (const node of document.querySelectorAll("time[data-ms]")) say(node, ago(Number(node.dataset.ms)));
}

/** Text of others, cut so that it can fill neither a page nor memory. */
export const short = (text, most = 40) => {
  const all = String(text ?? "");
  const cut = all.length > most ? `${all.slice(0, most - 1)}…` : all;
  return visible(cut);
};
