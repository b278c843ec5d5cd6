// Where switches are drawn: distances on paper like distances in the network (stress), by gradient steps over pairs.
//
// Source: Zheng, Pawar, Goodman, "Graph Drawing by Stochastic Gradient Descent" (2018). Differs: pairs are shuffled once, by a fixed
// seed, so that the same network looks the same everywhere. Cost: n searches and 30 steps over all pairs; 1,000 switches
// take some 0.3 s. Beyond ALL_PAIRS switches only pairs with some of them (pivots) count.
// A change moves no switch that has a place: see `place`.

export const EDGE = 100;
const STEPS = 30;
const ALL_PAIRS = 1500;
const PIVOTS = 60;

function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function neighbours(n, edges) {
  const lists = Array.from({ length: n }, () => []);
  for (const [a, b] of edges) if (a !== b) { lists[a].push(b); lists[b].push(a); }
  return lists;
}

function components(n, lists) {
  const seen = new Uint8Array(n);
  const all = [];
  for (let first = 0; first < n; first += 1) {
    if (seen[first]) continue;
    seen[first] = 1;
    const members = [first];
    for (let i = 0; i < members.length; i += 1) {
      for (const next of lists[members[i]]) if (!seen[next]) { seen[next] = 1; members.push(next); }
    }
    all.push(members);
  }
  return all.sort((a, b) => b.length - a.length);
}

function distances(from, lists, local, out) {
  out.fill(-1);
  out[local[from]] = 0;
  const queue = [from];
  for (let i = 0; i < queue.length; i += 1) {
    const d = out[local[queue[i]]];
    for (const next of lists[queue[i]]) if (out[local[next]] < 0) { out[local[next]] = d + 1; queue.push(next); }
  }
}

/** Positions of one connected part, x and y in turn. */
function stress(members, lists, local, seed) {
  const n = members.length;
  const draw = random(seed);
  const at = new Float64Array(2 * n);
  if (n === 1) return at;
  members.forEach((m, i) => { local[m] = i; });
  const sparse = n > ALL_PAIRS;
  const n_terms = sparse ? n * PIVOTS : (n * (n - 1)) / 2;
  const first = new Uint32Array(n_terms);
  const second = new Uint32Array(n_terms);
  const apart = new Float32Array(n_terms);
  const row = new Int32Array(n);
  let filled = 0;
  let longest = 1;
  for (let k = 0; k < (sparse ? PIVOTS : n); k += 1) {
    const i = sparse ? Math.floor((k * n) / PIVOTS) : k;
    distances(members[i], lists, local, row);
    for (let j = sparse ? 0 : i + 1; j < n; j += 1) {
      if (j === i) continue;
      first[filled] = i; second[filled] = j; apart[filled] = row[j];
      filled += 1;
      if (row[j] > longest) longest = row[j];
    }
  }
  for (let i = filled - 1; i > 0; i -= 1) {
    const j = Math.floor(draw() * (i + 1));
    let t = first[i]; first[i] = first[j]; first[j] = t;
    t = second[i]; second[i] = second[j]; second[j] = t;
    t = apart[i]; apart[i] = apart[j]; apart[j] = t;
  }
  for (let i = 0; i < 2 * n; i += 1) at[i] = draw() * longest;
  const decay = Math.log((longest * longest) / 0.1) / (STEPS - 1);
  for (let step = 0; step < STEPS; step += 1) {
    const eta = longest * longest * Math.exp(-decay * step);
    for (let t = 0; t < filled; t += 1) {
      const i = 2 * first[t];
      const j = 2 * second[t];
      const wanted = apart[t];
      const mu = Math.min(1, eta / (wanted * wanted));
      let dx = at[i] - at[j];
      let dy = at[i + 1] - at[j + 1];
      let length = Math.sqrt(dx * dx + dy * dy);
      if (length < 1e-6) { dx = 1e-3 * (draw() - 0.5); dy = 1e-3; length = 1e-3; }
      const r = (mu * (length - wanted)) / (2 * length);
      at[i] -= r * dx; at[i + 1] -= r * dy;
      at[j] += r * dx; at[j + 1] += r * dy;
    }
  }
  return at;
}

/** Moves apart who stands too close, as the spines of a pod do, which have the same neighbours. */
function spread(at) {
  const n = at.length / 2;
  const { x0, y0, x1, y1 } = box(at);
  const least = Math.min(0.5 * EDGE, 0.62 * Math.sqrt(((x1 - x0 + EDGE) * (y1 - y0 + EDGE)) / n));
  for (let round = 0; round < 40; round += 1) {
    const cells = new Map();
    const cell = (x, y) => Math.floor(x / least) * 100_003 + Math.floor(y / least);
    for (let i = 0; i < n; i += 1) {
      const key = cell(at[2 * i], at[2 * i + 1]);
      if (cells.has(key)) cells.get(key).push(i); else cells.set(key, [i]);
    }
    let n_moved = 0;
    for (let i = 0; i < n; i += 1) {
      const x = at[2 * i]; const y = at[2 * i + 1];
      for (let cx = -1; cx <= 1; cx += 1) for (let cy = -1; cy <= 1; cy += 1) {
        for (const j of cells.get(cell(x + cx * least, y + cy * least)) ?? []) {
          if (j <= i) continue;
          let dx = at[2 * j] - at[2 * i]; let dy = at[2 * j + 1] - at[2 * i + 1];
          let far = Math.hypot(dx, dy);
          if (far >= least * 0.999) continue;
          if (far < 1e-3) { dx = Math.cos(i); dy = Math.sin(i); far = 1; }
          const push = (least - Math.min(far, least)) / (2 * far);
          at[2 * i] -= dx * push; at[2 * i + 1] -= dy * push;
          at[2 * j] += dx * push; at[2 * j + 1] += dy * push;
          n_moved += 1;
        }
      }
    }
    if (n_moved === 0) break;
  }
}

/** Turns the long axis level, and the first member to the upper left. */
function level(at) {
  const n = at.length / 2;
  let mx = 0; let my = 0;
  for (let i = 0; i < n; i += 1) { mx += at[2 * i] / n; my += at[2 * i + 1] / n; }
  let xx = 0; let xy = 0; let yy = 0;
  for (let i = 0; i < n; i += 1) {
    const x = at[2 * i] - mx; const y = at[2 * i + 1] - my;
    xx += x * x; xy += x * y; yy += y * y;
  }
  const angle = 0.5 * Math.atan2(2 * xy, xx - yy);
  const c = Math.cos(angle); const d = Math.sin(angle);
  for (let i = 0; i < n; i += 1) {
    const x = at[2 * i] - mx; const y = at[2 * i + 1] - my;
    at[2 * i] = (c * x + d * y) * EDGE;
    at[2 * i + 1] = (c * y - d * x) * EDGE;
  }
  const fx = at[0] > 0 ? -1 : 1;
  const fy = at[1] > 0 ? -1 : 1;
  for (let i = 0; i < n; i += 1) { at[2 * i] *= fx; at[2 * i + 1] *= fy; }
}

const box = (at) => {
  let x0 = Infinity; let y0 = Infinity; let x1 = -Infinity; let y1 = -Infinity;
  for (let i = 0; i < at.length; i += 2) {
    x0 = Math.min(x0, at[i]); x1 = Math.max(x1, at[i]);
    y0 = Math.min(y0, at[i + 1]); y1 = Math.max(y1, at[i + 1]);
  }
  return { x0, y0, x1, y1 };
};

/** A layout from nothing: Map of name to { x, y }. `edges` are pairs of names. */
export function layout(names, edges) {
  const order = [...names].sort();
  const index = new Map(order.map((name, i) => [name, i]));
  const pairs = [];
  for (const [a, b] of edges) if (index.has(a) && index.has(b)) pairs.push([index.get(a), index.get(b)]);
  const lists = neighbours(order.length, pairs);
  const local = new Int32Array(order.length);
  const out = new Map();
  // The largest part first; the others stand in rows below it.
  let width = 0; let x = 0; let y = 0; let tall = 0;
  components(order.length, lists).forEach((members, part) => {
    const at = stress(members, lists, local, 7 + part);
    if (members.length > 1) { level(at); spread(at); }
    const { x0, y0, x1, y1 } = box(at);
    if (part === 0) width = Math.max(x1 - x0, 4 * EDGE);
    if (part > 0 && x > 0 && x + (x1 - x0) > width) { x = 0; y += tall + EDGE; tall = 0; }
    members.forEach((m, i) => out.set(order[m], { x: x + at[2 * i] - x0, y: y + at[2 * i + 1] - y0 }));
    tall = Math.max(tall, y1 - y0);
    if (part === 0) { x = 0; y += tall + EDGE; tall = 0; } else x += x1 - x0 + EDGE;
  });
  return out;
}

/** Places for a network that changed: who has a place keeps it. More than a third of newcomers: a layout from nothing. */
export function place(before, names, edges) {
  const known = names.filter((name) => before.has(name));
  if (known.length < names.length * 0.67 || known.length === 0) return layout(names, edges);
  const out = new Map(known.map((name) => [name, before.get(name)]));
  const lists = new Map(names.map((name) => [name, []]));
  for (const [a, b] of edges) { lists.get(a)?.push(b); lists.get(b)?.push(a); }
  let waiting = names.filter((name) => !before.has(name)).sort();
  while (waiting.length > 0) {
    const ready = waiting.filter((name) => lists.get(name).some((near) => out.has(near)));
    for (const name of ready) {
      const near = lists.get(name).filter((other) => out.has(other)).map((other) => out.get(other));
      const mx = near.reduce((sum, p) => sum + p.x, 0) / near.length;
      const my = near.reduce((sum, p) => sum + p.y, 0) / near.length;
      let best = { x: mx, y: my }; let room = -1;
      for (let k = 0; k < 16; k += 1) {
        const p = { x: mx + EDGE * Math.cos((k * Math.PI) / 8), y: my + EDGE * Math.sin((k * Math.PI) / 8) };
        let least = Infinity;
        for (const q of out.values()) least = Math.min(least, Math.hypot(p.x - q.x, p.y - q.y));
        if (least > room) { room = least; best = p; }
      }
      out.set(name, best);
    }
    waiting = waiting.filter((name) => !out.has(name));
    if (ready.length === 0) break;
  }
  const all = [...out.values()];
  const x0 = Math.min(...all.map((p) => p.x));
  const y1 = Math.max(...all.map((p) => p.y));
  waiting.forEach((name, i) => out.set(name, { x: x0 + (i % 20) * EDGE, y: y1 + EDGE * (1 + Math.floor(i / 20)) }));
  return out;
}
