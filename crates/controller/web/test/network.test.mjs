// A real controller with a million names, three real switches joined by cables of the kernel, and a browser: what a person does when
// something is wrong. FIBULA names the program; cables take root.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessible, close, open, picture, visit, withPage } from "./harness.mjs";

const FIBULA = process.env.FIBULA;
const skip = FIBULA ? (process.getuid() === 0 ? false : "cables take root") : "FIBULA names no program";
const NAMES = 1_000_000;
const CABLES = [[1, 2], [1, 3], [2, 3]];

let root, south, url;
const daemons = [];
const run = (program, ...words) => execFileSync(program, words, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 26 });
const ip = (...words) => run("ip", ...words);
const fibula = (...words) => run(FIBULA, ...words, "--controller", south);
const mac = (i) => [2, 0, ...[24, 16, 8, 0].map((shift) => (i >> shift) & 255)].map((byte) => byte.toString(16).padStart(2, "0")).join(":");
/** The interface of switch `i` to switch `j`; of a host there and of the switch for it. */
const trunk = (i, j) => `fbpg${i}${j}`;
const [wire, port] = [(i) => `fbpgh${i}`, (i) => `fbpgs${i}`];

/** A daemon, once it serves: what it says of itself. */
const started = (...words) => new Promise((done, failed) => {
  const daemon = spawn(FIBULA, [...words, "--json"], { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  daemons.push(daemon);
  let [said, why] = ["", ""];
  daemon.stderr.on("data", (bytes) => { why += bytes; });
  daemon.stdout.on("data", (bytes) => {
    said += bytes;
    if (said.includes("\n")) done(JSON.parse(said.slice(0, said.indexOf("\n"))));
  });
  daemon.on("exit", () => failed(new Error(`fibula ${words.join(" ")} has ended: ${why}`)));
});

/** Waits for what the controller says, for a minute. */
async function until(what, holds) {
  for (let i = 0; !holds(); i += 1) {
    assert.ok(i < 600, `not within a minute: ${what}`);
    await new Promise((done) => { setTimeout(done, 100); });
  }
}

/** Frames from a host to names, as a host's own program would send them. */
const SEND = `
import socket, sys, time
wire, source, to, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
host = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
host.bind((wire, 0))
octets = lambda text: bytes(int(byte, 16) for byte in text.split(":"))
frame = octets(to) + octets(source) + b"\\x08\\x00" + bytes(50)
for i in range(n):
    host.send(frame)
    time.sleep(0.001)
`;
const send = (i, source, to, n) => run("python3", "-c", SEND, wire(i), source, to, String(n));

before(async () => {
  if (skip) return;
  await open();
  root = mkdtempSync(join(tmpdir(), "fibula-page-"));
  for (const [i, j] of CABLES) ip("link", "add", trunk(i, j), "mtu", "1504", "type", "veth", "peer", "name", trunk(j, i), "mtu", "1504");
  for (const i of [1, 2, 3]) ip("link", "add", wire(i), "type", "veth", "peer", "name", port(i));
  for (const each of [...CABLES.flatMap(([i, j]) => [trunk(i, j), trunk(j, i)]), ...[1, 2, 3].flatMap((i) => [wire(i), port(i)])]) {
    // The kernel says nothing of its own here.
    try { writeFileSync(`/proc/sys/net/ipv6/conf/${each}/disable_ipv6`, "1"); } catch { /* it has no IPv6 */ }
    ip("link", "set", each, "up");
  }
  writeFileSync(join(root, "controller.toml"), `listen = "127.0.0.1:0"\nstatus = "127.0.0.1:0"\nstore = "rib.sqlite"\nname_kind = "mac"\nmax_names = ${2 * NAMES}\nauto_switches = "on"\nauto_links = "on"\n`);
  const { listen, status } = await started("controller", "--config", join(root, "controller.toml"));
  [south, url] = [`http://${listen}`, `http://${status}`];
  for (const i of [1, 2, 3]) {
    const ports = [1, 2, 3].filter((j) => j !== i).map((j) => `[[port]]\nid = ${10 + j}\ndevice = "${trunk(i, j)}"\nrole = "trunk"\n`);
    writeFileSync(join(root, `s${i}.toml`), `name = "s${i}"\ncontroller = "${south}"\nstate_dir = "s${i}"\n[[port]]\nid = 1\ndevice = "${port(i)}"\nrole = "host"\n${ports.join("")}`);
    await started("switch", "--config", join(root, `s${i}.toml`));
  }
  await until("three links are found", () => (fibula("link", "list", "--json").match(/"up":true/g) ?? []).length === 3);
  for (const i of [1, 2, 3]) fibula("host", "add", `h${i}`, `s${i}:1`);
  const lines = Array.from({ length: NAMES }, (_, i) => `${mac(i)},h${1 + (i % 3)}`);
  writeFileSync(join(root, "names.csv"), `name,host\n${lines.join("\n")}\n`);
  fibula("name", "import", join(root, "names.csv"));
  await until("all switches have all names", () => (fibula("switch", "list", "--json").match(/"in_step":true/g) ?? []).length === 3);
});
after(async () => {
  daemons.forEach((daemon) => daemon.removeAllListeners("exit").kill("SIGKILL"));
  if (skip) return;
  for (const each of [...CABLES.map(([i, j]) => trunk(i, j)), ...[1, 2, 3].map(wire)]) try { ip("link", "del", each); } catch { /* it was not made */ }
  rmSync(root, { recursive: true });
  await close();
});

test("a name among a million is found as one types, and its way is shown", { skip }, async () => {
  await withPage(url, {}, async (page) => {
    await visit(page, url, "#/names");
    const name = mac(777_775);
    for (const part of [name.slice(0, 8), name.slice(0, 14), name]) {
      const began = performance.now();
      await page.locator("#query").fill(part);
      await page.waitForFunction((part) => {
        const rows = [...document.querySelectorAll("table.names tbody tr")].map((row) => row.textContent);
        return rows.length > 0 && rows.every((row) => row.includes(part));
      }, part);
      console.log(`  ${part}: ${(performance.now() - began).toFixed(0)} ms`);
    }
    await page.locator("table.names tbody a").first().click();
    await page.waitForSelector(".hops li");
    await picture(page, "million");
    await accessible(page, "a name of a million");
  });
});

test("a cable that is pulled is drawn as cut, and as whole when it is back", { skip }, async () => {
  await withPage(url, { reducedMotion: "reduce" }, async (page) => {
    await page.waitForFunction(() => document.querySelector("#phase-text").textContent === "live");
    await page.waitForFunction(() => document.querySelectorAll(".link.up").length === 3);
    const key = await page.evaluate(() => [...document.querySelectorAll(".link")].map((link) => link.dataset.ends).find((ends) => /s1:12/.test(ends) && /s2:11/.test(ends)));
    assert.ok(key, "the link of the cable");
    const began = performance.now();
    ip("link", "set", trunk(1, 2), "down");
    await page.waitForSelector(`.link.cut[data-ends="${key}"]`);
    await page.waitForSelector(`.mark.cut[data-ends="${key}"]`);
    const took = performance.now() - began;
    console.log(`  a cut is drawn after ${took.toFixed(0)} ms`);
    assert.ok(took < 1500, "the answer was from before the event, and the page waited for its turn");
    assert.match(await page.locator("#attention .card").first().innerText(), /is cut/);
    await picture(page, "pulled");
    ip("link", "set", trunk(1, 2), "up");
    await page.waitForSelector(`.link.up[data-ends="${key}"]`, { timeout: 30_000 });
    await page.waitForFunction(() => ![...document.querySelectorAll("#attention .card")].some((card) => /is cut/.test(card.textContent)));
  });
});

test("what is dropped is shown with the reason, and what is delivered is counted", { skip }, async () => {
  await withPage(url, {}, async (page) => {
    await visit(page, url, "#/switch?name=s1");
    // From a name at the port of s1: to nobody, and to a name at s2.
    send(1, mac(0), "02:ff:00:00:00:01", 2000);
    send(1, mac(0), mac(1), 2000);
    await page.waitForFunction(() => /alien/.test(document.querySelector(".drops")?.textContent ?? ""));
    const drops = await page.locator(".drops").innerText();
    assert.match(drops, /alien[\s\S]*no host has/);
    assert.doesNotMatch(drops, /source_mac/, "who sends is there");
    // From nobody.
    send(1, "02:ff:00:00:00:02", mac(1), 500);
    await page.waitForFunction(() => /source_mac/.test(document.querySelector(".drops")?.textContent ?? ""));
    await picture(page, "drops");
    await accessible(page, "a switch that drops");
  });
});
