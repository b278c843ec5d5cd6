// Networks that are made up, and names that mean harm.

const link = (a, ap, b, bp) => ({ a: { switch: a, port: ap }, b: { switch: b, port: bp }, cost: 1, weight: 1, up: true, cut: false, raised: 0 });

function cabled(switches, pairs) {
  const next = new Map(switches.map((each) => [each.name, 1]));
  const port = (name) => { const n = next.get(name); next.set(name, n + 1); return n; };
  return { switches, links: pairs.map(([a, b]) => link(a, port(a), b, port(b))) };
}

export function abilene() {
  const names = ["atlanta", "chicago", "denver", "houston", "indianapolis", "kansascity", "losangeles", "newyork", "seattle", "sunnyvale", "washington"];
  return cabled(names.map((name) => ({ name, hosts: 1 })), [["seattle", "sunnyvale"], ["seattle", "denver"], ["sunnyvale", "losangeles"], ["sunnyvale", "denver"], ["losangeles", "houston"], ["denver", "kansascity"], ["kansascity", "houston"],
    ["kansascity", "indianapolis"], ["houston", "atlanta"], ["indianapolis", "chicago"], ["indianapolis", "atlanta"], ["chicago", "newyork"], ["newyork", "washington"], ["atlanta", "washington"]]);
}

/** Pods of 50: four spines and 46 leaves at four spines each; every spine at two of the cores. */
export function fabric(n) {
  const switches = [];
  const pairs = [];
  const n_cores = n >= 1000 ? 16 : 4;
  for (let i = 0; i < n_cores; i += 1) switches.push({ name: `core${i + 1}`, hosts: 0 });
  for (let pod = 1; switches.length < n; pod += 1) {
    const spines = [1, 2, 3, 4].map((i) => `p${pod}-spine${i}`).slice(0, n - switches.length);
    spines.forEach((name, i) => {
      switches.push({ name, hosts: 0 });
      for (let k = 0; k < 2; k += 1) pairs.push([name, `core${((i * 2 + k + pod) % n_cores) + 1}`]);
    });
    for (let leaf = 1; leaf <= 46 && switches.length < n; leaf += 1) {
      const name = `p${pod}-leaf${leaf}`;
      switches.push({ name, hosts: 2 });
      for (const spine of spines) pairs.push([name, spine]);
    }
  }
  return cabled(switches, pairs);
}

export const HOSTILE = [
  "<img src=x onerror=window.harmed=1>", "\"><script>window.harmed=1</script>", "javascript:window.harmed=1", "' onfocus=window.harmed=1 autofocus='", "__proto__", "constructor",
  "\u202egnp.evil", "</style><style>*{display:none}", "${window.harmed=1}", "a".repeat(4096), "&lt;b&gt;#/switch?name=x", "\u0000\u0007\r\n",
];
