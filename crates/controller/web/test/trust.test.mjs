// A real controller with certificates, and browsers that have one: of a reader, of a writer, of nobody, one that is withdrawn.
// FIBULA names the program; the controller listens at an address of this machine, since loopback addresses take no certificates.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessible, anybody, close, open, picture, visit, withPage } from "./harness.mjs";

const FIBULA = process.env.FIBULA;
const ADDRESS = Object.values(networkInterfaces()).flat().find((each) => each.family === "IPv4" && !each.internal)?.address;
const skip = FIBULA ? (ADDRESS ? false : "this machine has no address but loopback ones") : "FIBULA names no program";

let root, url;
const daemons = [];
const own = (...names) => join(root, ...names);
const fibula = (...words) => execFileSync(FIBULA, words, { encoding: "utf8", env: { ...process.env, FIBULA_PKI: own("pki"), HOME: root } });
/** Changes of an administrator, by command. */
const administer = (...words) => fibula(...words, "--controller", url.south, "--tls", own("pki", "operator", "root"));
/** What a browser is given to hold the certificate of an operator. */
const holding = (operator) => ({
  ignoreHTTPSErrors: true, // of the authority alone, which no browser knows
  clientCertificates: [{ origin: url.page, certPath: own("pki", "operator", operator, "cert.pem"), keyPath: own("pki", "operator", operator, "key.pem") }],
});

/** A daemon, once it serves: what it says of itself. */
const started = (...words) => new Promise((done, failed) => {
  const daemon = spawn(FIBULA, [...words, "--json"], { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  daemons.push(daemon);
  let said = "";
  let why = "";
  daemon.stderr.on("data", (bytes) => { why += bytes; });
  daemon.stdout.on("data", (bytes) => {
    said += bytes;
    if (said.includes("\n")) done(JSON.parse(said.slice(0, said.indexOf("\n"))));
  });
  daemon.on("exit", () => failed(new Error(`fibula ${words.join(" ")} has ended: ${why}`)));
});

before(async () => {
  if (skip) return;
  await open();
  root = mkdtempSync(join(tmpdir(), "fibula-page-"));
  fibula("pki", "init");
  fibula("pki", "issue", "controller", "c1", "--address", ADDRESS);
  fibula("pki", "issue", "switch", "s1", "s2");
  for (const [name, role] of [["ann", "reader"], ["will", "writer"], ["root", "admin"]]) fibula("pki", "issue", "operator", name, "--role", role);
  writeFileSync(own("controller.toml"), `listen = "${ADDRESS}:0"\nstatus = "${ADDRESS}:0"\nstore = "rib.sqlite"\nname_kind = "mac"\nmax_names = 1000\ndashboard = "change"\n[tls]\ndir = "pki/controller/c1"\n`);
  const { listen, status } = await started("controller", "--config", own("controller.toml"));
  url = { south: `https://${listen}`, page: `https://${status}` };
  for (const name of ["s1", "s2"]) administer("switch", "add", name);
  for (const port of [1, 2]) administer("link", "add", `s1:${port}`, `s2:${port}`);
  // They forward nothing, and answer lookups.
  for (const name of ["s1", "s2"]) {
    writeFileSync(own(`${name}.toml`), `name = "${name}"\ncontroller = "${url.south}"\nstate_dir = "${name}"\nlookup = "unix:${own(`${name}.sock`)}"\n[tls]\ndir = "pki/switch/${name}"\n`);
    await started("switch", "--config", own(`${name}.toml`));
  }
  for (let i = 0; !/"in_step":true[^]*"in_step":true/.test(administer("switch", "list", "--json")); i += 1) assert.ok(i < 100, "the switches are not in step");
});
after(async () => {
  daemons.forEach((daemon) => daemon.removeAllListeners("exit").kill("SIGKILL"));
  if (root) rmSync(root, { recursive: true });
  if (!skip) await close();
});

test("who has no certificate sees nothing", { skip }, async () => {
  const page = await anybody({ ignoreHTTPSErrors: true });
  await assert.rejects(page.goto(url.page), /ERR_/);
  await page.context().close();
});

test("a reader looks, and has the command instead of a button; what he asks for is refused", { skip }, async () => {
  await withPage(url.page, { ...holding("ann"), expect: /status of 403/ }, async (page) => {
    assert.equal(await page.locator(".graph .switch").count(), 2);
    await visit(page, url.page, "#/switch?name=s1");
    await page.waitForSelector(".command");
    assert.match(await page.locator(".command").first().innerText(), /fibula switch drain s1/);
    assert.equal(await page.getByRole("button", { name: /Drain/ }).count(), 0);
    await accessible(page, "a reader's page");
    await picture(page, "reader");
    // The page offers nothing; its origin may ask all the same.
    const [status, text] = await page.evaluate(async () => {
      const answer = await fetch("/ui/act", { method: "POST", headers: { "content-type": "application/json", "x-fibula": "1" }, body: JSON.stringify({ do: "switch.drain", name: "s1" }) });
      return [answer.status, await answer.text()];
    });
    assert.equal(status, 403, text);
    assert.match(text, /writer|admin/);
  });
});

test("a writer takes a link out of the paths and back, and the audit trail has his name", { skip }, async () => {
  await withPage(url.page, holding("will"), async (page) => {
    for (const [button, then] of [["Drain", "Take .* back"], ["Take .* back", "Drain"]]) {
      await visit(page, url.page, "#/link?a=s1&port=1");
      await page.getByRole("button", { name: new RegExp(button) }).first().click();
      await page.locator("dialog button.main").click();
      await page.waitForSelector(".toast");
      assert.match(await page.locator(".toast").last().innerText(), /drained after|back in use/);
      await page.getByRole("button", { name: new RegExp(then) }).first().waitFor();
    }
    await picture(page, "writer");
  });
  assert.match(fibula("audit", "show", "--file", own("rib.audit.jsonl")), /will/);
});

test("a role that is withdrawn while the page is open is said, and nothing is changed any more", { skip }, async () => {
  await withPage(url.page, { ...holding("will"), expect: /status of 40[13]|ERR_/ }, async (page) => {
    await page.waitForSelector("html[data-phase=live]");
    fibula("pki", "revoke", "operator", "will");
    copyFileSync(own("pki", "crl.pem"), own("pki", "controller", "c1", "crl.pem"));
    await page.waitForSelector("html[data-phase=refused]", { timeout: 10_000 });
    assert.match(await page.locator(".banner").innerText(), /certificate no longer lets you in[\s\S]*operator will \(writer\)[\s\S]*revoked/);
    assert.ok(!(await page.locator("#main").isVisible()), "what it may no longer see");
    await picture(page, "withdrawn");
    // The connection is closed soon after, and the page goes on saying why.
    await page.waitForFunction(async () => {
      try { await fetch("/ui/network", { cache: "no-store" }); return false; } catch { return true; }
    }, null, { timeout: 20_000, polling: 500 });
    assert.equal(await page.evaluate(() => document.documentElement.dataset.phase), "refused");
    const outcome = await page.evaluate(async () => {
      try {
        return (await fetch("/ui/act", { method: "POST", headers: { "content-type": "application/json", "x-fibula": "1" }, body: JSON.stringify({ do: "link.drain", end: { switch: "s1", port: 1 } }) })).status;
      } catch { return "no connection"; }
    });
    assert.ok(outcome === "no connection" || outcome === 401 || outcome === 403, `a change of a revoked writer: ${outcome}`);
  });
  // Neither the state nor the last column, whose heading is the same word.
  assert.doesNotMatch(administer("link", "list"), /^s.*(drained|yes$)/m);
});
