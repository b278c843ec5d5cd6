// Elements. Text enters the page as text nodes and attributes only: nothing here parses markup, so no name can be any.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = value;
    else if (key === "on") for (const [type, heard] of Object.entries(value)) node.addEventListener(type, heard);
    else if (key === "href" && !/^[#/]/.test(value)) throw new Error("links lead to this page only");
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

/** An element: h("p", { class: "note", on: { click } }, "text", other) */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** The same, of SVG. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** Sets text where it differs, so that what did not change is neither drawn nor announced again. */
export function say(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Sets or removes an attribute where it differs. */
export function put(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else {
    const wanted = value === true ? "" : String(value);
    if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
  }
}

/** Sets a sentence of the controller, in which what stands between backquotes is typed: a command, or a key. */
export function tell(node, text) {
  const wanted = String(text);
  if (node.dataset.told === wanted) return;
  node.dataset.told = wanted;
  const parts = wanted.split("`");
  // One backquote alone is a character like others, and is left out.
  const is_paired = parts.length % 2 === 1;
  node.replaceChildren(...(is_paired ? parts.map((part, i) => (i % 2 === 1 ? h("code", null, part) : part)) : [parts.join("'")]));
}

/** The same, where there can be no elements: a title, or what is read aloud. */
export const plain = (text) => String(text).replaceAll("`", "");

const kept = new WeakMap();

/**
 * Makes the children of `parent` those of `items`, and keeps the rows that stay: focus and selection survive.
 * `create(item)` gives { node, ... }; `update(row, item)` writes what may have changed.
 */
export function sync(parent, items, keyOf, create, update) {
  const before = kept.get(parent) ?? new Map();
  const after = new Map();
  for (const item of items) {
    let key = keyOf(item);
    while (after.has(key)) key += "\u0000";
    after.set(key, item);
  }
  for (const [key, row] of before) if (!after.has(key)) row.node.remove();
  let cursor = parent.firstChild;
  for (const [key, item] of after) {
    const row = before.get(key) ?? create(item);
    update?.(row, item);
    after.set(key, row);
    if (row.node === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(row.node, cursor);
  }
  kept.set(parent, after);
}

/** The address of a view. */
export function route(view, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params ?? {})) if (value !== "" && value !== null && value !== undefined) query.set(key, value);
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

export const linkTo = (view, params, text, more) => h("a", { href: route(view, params), ...more }, text);

/** A table with a caption for screen readers. `heads`: [text, class]. Gives { node, body }. */
export function table(caption, heads, className = "") {
  const body = h("tbody");
  const node = h("table", { class: className }, h("caption", { class: "hidden" }, caption),
    h("thead", null, h("tr", null, heads.map(([text, cls]) => h("th", { scope: "col", class: cls }, text)))), body);
  return { node, body };
}

/** A box that scrolls sideways, and that the keyboard reaches. */
export const wide = (label, node) => h("div", { class: "wide", role: "region", tabindex: "0", "aria-label": label }, node);

/** A command to type, and a button that copies it where the browser allows that. */
export function command(text) {
  const code = h("code", { class: "command" }, text);
  if (!navigator.clipboard) return code;
  const button = h("button", { type: "button", class: "small plain", "aria-label": `Copy ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Not allowed"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return h("span", { class: "commands" }, code, button);
}

// What would turn, hide or break the text around it is written as its number.
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|\udb40[\udc00-\udfff]/g;

/** A text of others with every character to be seen. */
export const visible = (text) => text.replace(unseen, (each) => each.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));

/** A word of a command line: quoted where a shell would read it otherwise, and with what cannot be seen written out. */
export const word = (text) => {
  if (/^[A-Za-z0-9_.:@%+,/-]+$/.test(text) && !text.startsWith("-")) return text;
  if (visible(text) === text) return `'${text.replaceAll("'", "'\\''")}'`;
  const escaped = text.replace(/['\\]/g, "\\$&");
  return `$'${escaped.replace(unseen, (each) => `\\U${each.codePointAt(0).toString(16).padStart(8, "0")}`)}'`;
};
