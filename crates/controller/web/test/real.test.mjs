// What holds at any controller: FIBULA_DASHBOARD_URL names a real one; without it, one that is made up. Changes nothing there.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { brotliCompressSync } from "node:zlib";
import { accessible, close, fits, open, picture, REAL, visit, withMock, withPage } from "./harness.mjs";

before(open);
after(close);

const at = (body) => (REAL ? body(REAL) : withMock({ names: 10_000 }, (mock, url) => body(url)));

test("every view of this controller is drawn without an error", () => at(async (url) => {
  await withPage(url, {}, async (page) => {
    const network = await (await page.request.get(`${url}/ui/network`)).json();
    assert.equal(await page.locator(".graph .switch").count(), network.switches.length);
    const { names } = await (await page.request.get(`${url}/ui/names?q=&limit=1`)).json();
    const views = ["", "#/names", "#/inventory", "#/events"];
    if (network.switches.length > 0) views.push(`#/switch?${new URLSearchParams({ name: network.switches[0].name })}`);
    if (network.links.length > 0) views.push(`#/link?${new URLSearchParams({ a: network.links[0].a.switch, port: network.links[0].a.port })}`);
    if (names.length > 0 && network.switches.length > 0) views.push(`#/name?${new URLSearchParams({ name: names[0].name, from: network.switches[0].name })}`);
    for (const [i, view] of views.entries()) {
      await visit(page, url, view);
      await page.waitForFunction(() => document.querySelector("#phase-text").textContent === "live");
      await fits(page, view);
      await accessible(page, view);
      await picture(page, `controller-${i}`);
    }
    if (names.length > 0) {
      await page.locator("#query").fill(names[0].name);
      await page.locator("table.names tbody a").first().click();
      await page.waitForSelector(".hops li");
    }
  });
}));

test("the page weighs little, and its policy lets nothing else in", () => at(async (url) => {
  await withPage(url, {}, async (page) => {
    const files = await page.evaluate(() => ["/", ...performance.getEntriesByType("resource").map((each) => each.name).filter((name) => /\/ui\/[a-z]+\.(js|css)$/.test(name))]);
    let packed = 0;
    for (const file of new Set(files)) {
      const response = await page.request.get(new URL(file, url).href);
      assert.equal(response.status(), 200, file);
      packed += brotliCompressSync(await response.body()).length;
      if (file === "/") assert.match(response.headers()["content-security-policy"], /default-src 'none'; script-src 'self'; style-src 'self'/);
    }
    console.log(`  ${new Set(files).size} files, ${(packed / 1000).toFixed(1)} kB as brotli`);
    assert.ok(files.length > 10 && packed < 150_000);
  });
}));
