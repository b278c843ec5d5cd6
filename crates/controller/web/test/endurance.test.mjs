// Controllers that go and come, floods of events, large networks, and how long one waits for the page.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, open, picture, visit, withMock, withPage } from "./harness.mjs";

before(open);
after(close);

const AWAY = /ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET/;

test("a controller that goes and comes is noticed, and events go on", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, { expect: AWAY }, async (page) => {
      await visit(page, url, "#/events");
      await page.waitForFunction(() => document.querySelectorAll(".event").length === 1);
      await mock.leave();
      await page.waitForSelector(".banner.bad");
      assert.match(await page.locator(".banner").innerText(), /lost, trying again/);
      await page.evaluate(() => { location.hash = "#/"; });
      await page.waitForSelector(".graph .switch");
      await picture(page, "lost");
      await page.evaluate(() => { location.hash = "#/events"; });
      await mock.comeBack();
      await page.waitForSelector(".banner.bad", { state: "detached" });
      await page.waitForFunction(() => document.querySelectorAll(".event").length === 2, null, { timeout: 10_000 });
      mock.cut(1);
      await page.waitForSelector(".event.bad");
      assert.equal(await page.locator(".event").count(), 3, "no event twice, none missed");
    });
  });
});

test("a stream that breaks goes on where it was", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, { expect: AWAY }, async (page) => {
      await visit(page, url, "#/events");
      await page.waitForFunction(() => document.querySelectorAll(".event").length === 1);
      for (let i = 0; i < 3; i += 1) {
        for (const client of mock.clients) client.destroy();
        mock.cut(1, i % 2 === 0);
        await page.waitForFunction((n) => document.querySelectorAll(".event").length === n, i + 2);
      }
      for (const client of mock.clients) client.destroy();
      for (let i = 0; i < 1500; i += 1) mock.tell("names", "02:00", `change ${i}`, "info");
      await page.waitForFunction(() => document.body.textContent.includes("500 events were missed"));
    });
  });
});

test("a certificate that was revoked is said, and the page asks seldom from then on", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, { expect: /status of 403|ERR_CONNECTION_REFUSED/ }, async (page) => {
      let asked = 0;
      page.on("request", (request) => { if (request.url().includes("/ui/")) asked += 1; });
      mock.refusing = 403;
      await page.waitForSelector("html[data-phase=refused]");
      assert.match(await page.locator(".banner").innerText(), /certificate no longer[\s\S]*revoked/);
      await picture(page, "refused");
      const shown = () => page.evaluate(() => ["#main", "#strip", "#query"].filter((each) => document.querySelector(each).checkVisibility()));
      assert.deepEqual(await shown(), [], "what may no longer be seen");
      asked = 0;
      await page.waitForTimeout(5000); // the time in which it must not ask
      assert.ok(asked <= 1, `${asked} questions in 5 s`);
      // Who is refused gets no connection any more: that is no reason to say that the controller is away.
      await mock.leave();
      await page.getByRole("button", { name: "Try now" }).click();
      await page.waitForFunction(() => performance.getEntriesByType("resource").filter((each) => each.name.endsWith("/ui/network")).at(-1).responseStatus === 0);
      assert.equal(await page.evaluate(() => document.documentElement.dataset.phase), "refused");
      assert.deepEqual(await shown(), []);
      mock.refusing = 0;
      await mock.comeBack();
      await page.getByRole("button", { name: "Try now" }).click();
      await page.waitForSelector("html[data-phase=live]");
      await page.waitForSelector(".graph .switch");
      assert.deepEqual(await shown(), ["#main", "#strip", "#query"]);
    });
  });
});

test("a page open for a million events does not grow", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, {}, async (page, context) => {
      await visit(page, url, "#/events");
      const cdp = await context.newCDPSession(page);
      const weigh = async () => {
        for (let i = 0; i < 2; i += 1) await cdp.send("HeapProfiler.collectGarbage");
        const { usedSize } = await cdp.send("Runtime.getHeapUsage");
        const { nodes, jsEventListeners } = await cdp.send("Memory.getDOMCounters");
        return { heap_mib: usedSize / 2 ** 20, nodes, jsEventListeners };
      };
      const done = (n) => page.waitForFunction((text) => document.querySelector(".event .text")?.textContent.startsWith(text), `event ${n - 1} of`, { timeout: 300_000 });
      await mock.flood(5000);
      await done(5000);
      const before = await weigh();
      const started = performance.now();
      await mock.flood(1_000_000);
      await done(1_000_000);
      const seconds = (performance.now() - started) / 1000;
      const later = await weigh();
      console.log(`  a million events in ${seconds.toFixed(1)} s; heap ${before.heap_mib.toFixed(1)} MiB before, ${later.heap_mib.toFixed(1)} MiB after; ${before.nodes} and ${later.nodes} nodes`);
      assert.equal(await page.locator(".event").count(), 1000);
      assert.ok(later.heap_mib < before.heap_mib + 3, "the heap grew");
      assert.ok(later.nodes < before.nodes * 1.2 + 500, "nodes stay");
      assert.ok(later.jsEventListeners < before.jsEventListeners * 1.2 + 100, "listeners stay");
      // The same while views come and go.
      const tour = async (n) => {
        for (let i = 0; i < n; i += 1) for (const hash of ["#/", "#/switch?name=chicago", "#/names?q=02", "#/inventory", "#/events"]) {
          // No handle to an element: it would keep the view that it is from.
          await page.evaluate(async (to) => { location.hash = to; while (!document.querySelector("#panel section")) await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); }, hash);
        }
      };
      await tour(10);
      const first = await weigh();
      await tour(40);
      const last = await weigh();
      console.log(`  50 tours of five views: heap ${first.heap_mib.toFixed(1)} and ${last.heap_mib.toFixed(1)} MiB, ${first.nodes} and ${last.nodes} nodes`);
      assert.ok(last.heap_mib < first.heap_mib + 3 && last.nodes < first.nodes * 1.2 + 2000, "views that were left stay in memory");
    });
  });
});

test("hundreds of answers leave nothing behind, in the drawing either", async () => {
  await withMock({ switches: 100 }, async (mock, url) => {
    await withPage("", {}, async (page, context) => {
      await page.clock.install();
      await visit(page, url, "#/switch?name=core1");
      const cdp = await context.newCDPSession(page);
      const weigh = async () => {
        for (let i = 0; i < 2; i += 1) await cdp.send("HeapProfiler.collectGarbage");
        const { usedSize } = await cdp.send("Runtime.getHeapUsage");
        const { nodes } = await cdp.send("Memory.getDOMCounters");
        return { heap_mib: usedSize / 2 ** 20, nodes };
      };
      const pass = async (n) => {
        for (let i = 0; i < n; i += 1) {
          if (i % 50 === 0) mock.cut(i % mock.links.length, i % 100 === 0);
          // The page's clock goes on until it has asked again.
          for (const goal = mock.n_polls + 1; mock.n_polls < goal;) await page.clock.runFor(1000);
        }
      };
      await pass(100);
      const before = await weigh();
      await pass(500);
      const later = await weigh();
      console.log(`  500 answers about 100 switches: heap ${before.heap_mib.toFixed(1)} and ${later.heap_mib.toFixed(1)} MiB, ${before.nodes} and ${later.nodes} nodes`);
      assert.ok(later.heap_mib < before.heap_mib + 2 && later.nodes < before.nodes * 1.1 + 300);
    });
  });
});

test("a page that nobody sees stops asking, and takes up the events when it is seen again", async () => {
  await withMock({}, async (mock, url) => {
    await withPage("", { expect: AWAY }, async (page) => {
      await page.clock.install();
      await visit(page, url, "#/events");
      await page.waitForFunction(() => document.querySelectorAll(".event").length === 1);
      const see = (seen) => page.evaluate((yes) => {
        Object.defineProperty(document, "hidden", { value: !yes, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, seen);
      await see(false);
      await page.clock.runFor(61_000);
      await page.waitForFunction(() => document.querySelector("#phase-text").textContent === "live, no events");
      const polls = mock.n_polls;
      await page.clock.runFor(60_000);
      mock.cut(3);
      assert.equal(mock.n_polls, polls, "it asks though nobody sees it");
      await see(true);
      await page.clock.runFor(1000);
      await page.waitForSelector(".event.bad");
      assert.equal(await page.locator(".event").count(), 2);
    });
  });
});

test("a network without switches says how to get one", async () => {
  await withMock({ switches: 0, names: 0 }, async (mock, url) => {
    await withPage(url, {}, async (page) => {
      assert.match(await page.locator(".empty").innerText(), /fibula switch add/);
      for (const view of ["#/inventory", "#/names", "#/name?name=x", "#/"]) await visit(page, url, view);
      await picture(page, "empty");
    });
  });
});

const median = (all) => all.sort((a, b) => a - b)[all.length >> 1];
for (const [switches, goal_ms, picture_name] of [[11, 1000, null], [100, 1000, "hundred"], [1000, 3000, "thousand"]]) {
  test(`${switches} switches and a million names are drawn in ${goal_ms} ms`, async () => {
    await withMock({ switches, names: 1_000_000 }, async (mock, url) => {
      await withPage(url, {}, async (page) => {
        const times = []; let layout = 0;
        for (let i = 0; i < 7; i += 1) {
          await visit(page, url, `?${i}`);
          times.push(await page.waitForFunction(() => performance.getEntriesByName("useful")[0]?.startTime).then((value) => value.jsonValue()));
          layout = Number(await page.locator("svg.graph").getAttribute("data-layout-ms"));
        }
        console.log(`  ${switches} switches, ${mock.links.length} links, 1M names: useful after ${median(times).toFixed(0)} ms (${Math.min(...times).toFixed(0)} to ${Math.max(...times).toFixed(0)}), of which the layout ${layout.toFixed(0)} ms`);
        assert.equal(await page.locator(".graph .switch").count(), switches);
        assert.ok(median(times) < goal_ms, `useful after ${median(times)} ms`);
        assert.ok(layout < 1000, `the layout took ${layout} ms`);
        if (picture_name) await picture(page, picture_name);
      });
    });
  });
}

test("a switch more moves no other", async () => {
  await withMock({ switches: 100 }, async (mock, url) => {
    await withPage(url, {}, async (page) => {
      const places = () => page.locator(".graph .switch").evaluateAll((all) => all.slice(0, 100).map((each) => each.getAttribute("transform")));
      const before = await places();
      mock.pending = [{ name: "new", version: "", address: "", first_ms: 0, last_ms: 0 }];
      mock.act({ do: "switch.accept", name: "new" });
      mock.links.push({ a: { switch: "new", port: 1 }, b: { switch: "core1", port: 99 }, cost: 1, up: true, cut: false, raised: 0 });
      mock.at = null;
      await page.waitForFunction(() => document.querySelectorAll(".graph .switch").length === 101);
      assert.deepEqual(await places(), before);
    });
  });
});
