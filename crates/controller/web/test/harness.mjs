// One browser for all tests, pages that note every error, and pictures of what was seen.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { Mock } from "./mock.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const PICTURES = process.env.FIBULA_PICTURES ?? fileURLToPath(new URL("../../../../target/dashboard/", import.meta.url));
mkdirSync(PICTURES, { recursive: true });

/** A real controller's address, or none: then the tests have one that is made up. */
export const REAL = process.env.FIBULA_DASHBOARD_URL?.replace(/\/$/, "");

let browser;
export async function open() {
  const executablePath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => path && existsSync(path));
  assert.ok(executablePath, "no chromium: scripts/setup dashboard installs it, or CHROMIUM names one");
  browser = await chromium.launch({ executablePath, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
}
export const close = () => browser.close();

/** A controller that is made up, for the time of `body`. */
export async function withMock(options, body) {
  const mock = new Mock(options);
  const url = await mock.listen();
  try { await body(mock, url); } finally { await mock.leave().catch(() => {}); }
}

/** A page of which nothing is demanded. */
export const anybody = async (settings) => (await browser.newContext(settings)).newPage();

/**
 * A page, for the time of `body`. It fails on an error in the console, an exception, or a violation of the policy;
 * `expect` names errors that the test brings about.
 */
export async function withPage(url, options, body) {
  const { expect = /^$/, ...settings } = options;
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...settings });
  const errors = [];
  try {
    await context.addInitScript(() => {
      window.violations = [];
      document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
    });
    const page = await context.newPage();
    page.setDefaultTimeout(10_000);
    page.on("console", (message) => { if (message.type() === "error" && !expect.test(message.text())) errors.push(message.text()); });
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("request", (request) => { if (!request.url().startsWith(url || "http://127.0.0.1:") && !request.url().startsWith("data:")) errors.push(`a request to ${request.url()}`); });
    if (url) await visit(page, url, "");
    await body(page, context);
    assert.deepEqual(await page.evaluate(() => window.violations), [], "violations of the content security policy");
    assert.equal(await page.evaluate(() => window.harmed), undefined, "a name was run");
  } finally { await context.close(); }
  assert.deepEqual(errors, [], "errors in the console");
}

export async function visit(page, url, route) {
  await page.goto(`${url}/${route}`);
  await page.waitForSelector("body[data-ready]", { timeout: 10_000 });
}

export const picture = (page, name) => page.screenshot({ path: `${PICTURES}/${name}.png` });

/** No finding of any rule of axe of serious or critical impact, and every link in the content underlined. */
export async function accessible(page, where) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const each of violations) console.log(`  axe, ${where}: ${each.impact} ${each.id}: ${each.nodes.slice(0, 3).map((node) => node.target.join(" ")).join("; ")}`);
  const bare = await page.evaluate(() => [...document.querySelectorAll("main a")].filter((each) => !getComputedStyle(each).textDecorationLine.includes("underline")).map((each) => each.outerHTML));
  assert.deepEqual(bare, [], `links in ${where} that colour alone tells from text`);
  assert.deepEqual(violations.filter((each) => ["serious", "critical"].includes(each.impact)).map((each) => `${each.id}: ${each.nodes[0].html} ${each.nodes[0].failureSummary}`), [], `findings of axe in ${where}`);
}

/** Waits for what happens at the made-up controller; looks a hundred times a second, for ten seconds. */
export async function until(what, holds) {
  for (let i = 0; !holds(); i += 1) {
    assert.ok(i < 1000, `not within ten seconds: ${what}`);
    await new Promise((done) => { setTimeout(done, 10); });
  }
}

/** Nothing is wider than the page. */
export async function fits(page, where) {
  const [wide, room, culprit] = await page.evaluate(() => {
    const room = document.documentElement.clientWidth;
    const out = [...document.querySelectorAll("body *")].find((each) => each.getBoundingClientRect().right > room + 1 && !each.closest(".wide, svg, .hidden"));
    return [document.documentElement.scrollWidth, room, out ? `${out.tagName}.${out.className}` : ""];
  });
  assert.ok(wide <= room, `${where} is ${wide} px wide in ${room}: ${culprit}`);
}
