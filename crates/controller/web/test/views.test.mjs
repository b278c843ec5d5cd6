// What each view shows, on a made-up network. `npm test` here, or `make dashboard-test`.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessible, close, fits, open, picture, until, visit, withMock, withPage } from "./harness.mjs";
import { HOSTILE } from "./networks.mjs";

before(open);
after(close);

const NAME = "02:00:00:00:00:09";
const ROUTES = [["network", "#/"], ["names", "#/names?q=02:00:00:1"], ["name", `#/name?name=${encodeURIComponent(NAME)}&from=seattle`], ["switch", "#/switch?name=chicago"], ["link", "#/link?a=chicago&port=2"], ["inventory", "#/inventory"], ["events", "#/events"]];
const settled = { network: ".events.brief li", names: "table.names tbody tr", name: ".hops li", switch: ".drops li", link: ".facts dd", inventory: "tbody tr", events: ".events li" };
/** A network in which much is wrong. */
function troubled(mock) {
  mock.cut(5);
  mock.links[9].raised = 3;
  mock.links[13].up = false;
  mock.switches[7].connected = false;
  mock.switches[4].in_step = false;
  mock.switches[8].cannot_follow = "its design concise+bloom is not known to version 0.0.9: update it";
  mock.pending = [{ name: "miami", version: "0.1.0", address: "10.0.0.9:51234", first_ms: Date.now() - 400_000, last_ms: Date.now() }];
  mock.found = [{ a: { switch: "seattle", port: 7 }, b: { switch: "chicago", port: 7 } }];
  mock.tell("switch", "newyork", "is gone: its connection was silent for two seconds", "warning");
  mock.tell("switch", "miami", "waits to be accepted", "info");
}

test("every view has no finding of axe and fits, light and dark, wide and at 390 px", async () => {
  await withMock({ names: 1_000_000 }, async (mock, url) => {
    troubled(mock);
    for (const [colorScheme, width, height] of [["light", 1440, 900], ["dark", 1440, 900], ["light", 390, 844], ["dark", 390, 844]]) {
      await withPage(url, { colorScheme, viewport: { width, height }, reducedMotion: "reduce" }, async (page) => {
        for (const [name, route] of ROUTES) {
          await visit(page, url, route);
          await page.waitForSelector(`#panel ${settled[name]}`);
          if (name === "network") await page.waitForSelector(".card[data-kind=behind]");
          await fits(page, `${name} at ${width}`);
          await picture(page, `${name}-${colorScheme}-${width}`);
          await accessible(page, `${name}, ${colorScheme}, ${width} px`);
        }
      });
    }
  });
});

test("nothing is wider than the page at any usual width", async () => {
  await withMock({ names: 1_000_000 }, async (mock, url) => {
    troubled(mock);
    for (const width of [320, 520, 720, 900, 1180, 1920]) {
      await withPage(url, { viewport: { width, height: 800 } }, async (page) => {
        for (const [name, route] of ROUTES) {
          await visit(page, url, route);
          await page.waitForSelector(`#panel ${settled[name]}`);
          await fits(page, `${name} at ${width}`);
          if (name === "network") await picture(page, `network-${width}`);
        }
      });
    }
  });
});

test("a name is found while one types, and shows where it is and its way", async () => {
  await withMock({ names: 1_000_000 }, async (mock, url) => {
    await withPage(url, {}, async (page) => {
      await page.locator("#query").pressSequentially("02:00:00:00:00:", { delay: 15 });
      await page.waitForSelector("table.names tbody tr");
      await page.waitForFunction(() => document.querySelector("#panel .note").textContent.includes("begin with 02:00:00:00:00:"));
      assert.ok(mock.asked.length <= 4, `${mock.asked.length} questions for 15 keys in a row`);
      await page.locator("table.names tbody a", { hasText: NAME }).click();
      await page.waitForSelector(".hops li");
      assert.match(await page.locator(".facts").innerText(), /h-houston[\s\S]*houston port 100/);
      await page.locator("#from").selectOption("seattle");
      await page.waitForFunction(() => document.querySelector(".hops li a")?.textContent === "seattle");
      const hops = await page.locator(".hops li a").allInnerTexts();
      assert.equal(hops.at(-1), "houston");
      assert.equal(await page.locator(".trace .leg[d^=M]").count(), hops.length - 1, "one leg drawn for each hop");
      assert.equal(await page.locator(".switch.traced").count(), hops.length);
      // The way follows the network.
      const first = mock.links.findIndex((link) => [link.a.switch, link.b.switch].includes(hops[0]) && [link.a.switch, link.b.switch].includes(hops[1]));
      mock.cut(first);
      await page.waitForFunction((old) => document.querySelectorAll(".hops li a")[1]?.textContent !== old, hops[1]);
    });
  });
});

test("an answer that comes late never replaces a later one", async () => {
  await withMock({ names: 100_000 }, async (mock, url) => {
    mock.names_delay_ms = (q) => (q === "02" ? 1500 : 0);
    await withPage(url, {}, async (page) => {
      await page.locator("#query").fill("02");
      await until("the first question", () => mock.asked.includes("02"));
      await page.locator("#query").fill("02:00:00:00:01:0");
      await page.waitForFunction(() => document.querySelector("table.names a")?.textContent.startsWith("02:00:00:00:01:0"));
      await until("the first question is given up", () => mock.n_aborted > 0);
      assert.match(await page.locator("table.names a").first().innerText(), /^02:00:00:00:01:0/);
    });
  });
});

test("a cut link turns red and gets a cross, is listed first, and heals, as it happens", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, { reducedMotion: "reduce" }, async (page) => {
      const key = `${mock.links[5].a.switch}:${mock.links[5].a.port} ${mock.links[5].b.switch}:${mock.links[5].b.port}`;
      const link = page.locator(`.link[data-ends="${key}"]`);
      const places = () => page.locator(".graph .switch").evaluateAll((all) => all.map((each) => each.getAttribute("transform")));
      const before = await places();
      await page.waitForFunction(() => document.querySelector("#phase-text").textContent === "live");
      // Right after an answer: the next one in turn is two seconds away, so the event is what makes the page ask.
      const asked = mock.n_polls;
      await until("an answer", () => mock.n_polls > asked);
      const started = performance.now();
      mock.cut(5);
      await page.waitForSelector(`.mark.cut[data-ends="${key}"]`);
      await page.waitForSelector(`.link.cut[data-ends="${key}"]`);
      const took = performance.now() - started;
      console.log(`  a cut is drawn after ${took.toFixed(0)} ms`);
      assert.ok(took < 1500, "it waited for its turn");
      const [r, g, b] = (await link.locator(".line").evaluate((each) => getComputedStyle(each).stroke)).match(/\d+/g).map(Number);
      assert.ok(r > 150 && g < 90 && b < 90, `rgb(${r}, ${g}, ${b}) is red`);
      assert.match(await page.locator("#attention .card").first().innerText(), /is cut/);
      assert.match(await page.locator("#assertive").innerText(), /cut/);
      await picture(page, "cut");
      mock.cut(5, false);
      await page.waitForSelector(`.link.up[data-ends="${key}"]`);
      await page.waitForFunction(() => document.querySelectorAll("#attention .card").length === 0);
      assert.match(await page.locator("#polite").innerText(), /again/);
      assert.deepEqual(await places(), before, "no switch moved");
    });
  });
});

test("a switch shows why it drops, its ports with rates, and its tables", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, {}, async (page) => {
      await page.locator(".graph .switch", { hasText: "chicago" }).click();
      await page.waitForSelector(".drops li");
      assert.match(page.url(), /#\/switch\?name=chicago$/);
      assert.match(await page.locator(".drops li").first().innerText(), /alien[\s\S]*0\.60 frames\/s[\s\S]*a name that no host has/);
      assert.equal(await page.locator(".drops:not(.fold .drops) > li").count(), 3, "a reason that never occurred is left out, and one that is as it should be is apart");
      assert.match(await page.locator("details.fold summary").innerText(), /^8,820 frames dropped as they should be, for 1 reason$/);
      await page.locator("details.fold summary").click();
      assert.match(await page.locator("details.fold li").innerText(), /broadcast[\s\S]*\[groups\] tenants in controller\.toml/);
      assert.equal(await page.locator("details.fold li code").last().innerText(), "[groups] tenants", "what is typed is set apart, without backquotes");
      assert.match(await page.locator(".curve-box").innerText(), /bit\/s[\s\S]*1 h ago[\s\S]*now/);
      assert.match(await page.locator("table").innerText(), /[kMG]bit\/s/);
      assert.match(await page.locator(".bars").innerText(), /MiB|KiB/);
      await page.goBack();
      await page.waitForSelector("#attention");
    });
  });
});

test("a switch that stopped is one alarm, its links are folded under it, and the others are told", async () => {
  await withMock({}, async (mock, url) => {
    const stopped = mock.switches.find((each) => each.name === "houston");
    stopped.connected = false;
    const its = mock.links.filter((link) => [link.a, link.b].some((end) => end.switch === "houston"));
    for (const link of its) link.cut = true;
    const other = mock.links.find((link) => !its.includes(link));
    other.cut = true;
    await withPage(url, {}, async (page) => {
      const cards = page.locator("#attention .card.bad");
      await page.waitForFunction(() => document.querySelectorAll("#attention .card.bad").length === 2);
      assert.match(await cards.nth(0).innerText(), /^\D*houston is not connected/);
      assert.match(await cards.nth(1).innerText(), new RegExp(`${other.a.switch}:${other.a.port}`));
      assert.equal(await page.locator("#attention .tally").innerText(), "2");
      const fold = cards.nth(0).locator("details");
      assert.equal(await fold.locator("summary").innerText(), `${its.length} links of it are cut`);
      await fold.locator("summary").click();
      assert.equal(await fold.locator("li a").count(), its.length);
      await page.waitForFunction(() => document.title.startsWith("(2)"));
      stopped.connected = true;
      for (const link of its) link.cut = false;
      await page.waitForFunction(() => document.querySelectorAll("#attention .card.bad").length === 1);
    });
  });
});

test("hosts and ports outside are drawn at their switches, and many are a number", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, {}, async (page) => {
      const drawn = await page.evaluate(() => [...document.querySelectorAll(".graph .host-box")].length);
      const stubs = mock.switches.map((each, i) => mock.edges(each, i).length);
      const expected = stubs.reduce((sum, n) => sum + Math.min(n, 6), 0);
      assert.equal(drawn, expected);
      assert.ok(await page.locator(".graph .host-box.outside").count() > 0, "a gateway has its port outside");
      assert.ok(await page.locator(".graph .host-box.down").count() > 0, "a port that is down is seen");
      assert.ok((await page.locator(".graph .host-name").allTextContents()).some((text) => text === `+${Math.max(...stubs) - 5}`));
    });
  });
});

test("on a phone no table has a column that is cut", async () => {
  await withMock({}, async (mock, url) => {
    for (const route of ["#/inventory", "#/switch?name=chicago", "#/names?q=02:00"]) {
      await withPage(url, { viewport: { width: 390, height: 844 } }, async (page) => {
        await page.evaluate((hash) => { location.hash = hash; }, route);
        await page.waitForSelector("table tbody tr");
        await page.waitForFunction(() => [...document.querySelectorAll(".wide")].some((box) => box.clientWidth > 0));
        const cut = await page.evaluate(() => [...document.querySelectorAll(".wide")].filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => `${box.getAttribute("aria-label")}: ${box.scrollWidth} in ${box.clientWidth}`));
        assert.deepEqual(cut, [], route);
      });
    }
  });
});

test("a name that was found shows its address", async () => {
  await withMock({}, async (mock, url) => {
    const { name, ip } = mock.recordAt(7);
    assert.ok(ip, "the seventh has one");
    for (const width of [1440, 390]) {
      await withPage(url, { viewport: { width, height: 844 } }, async (page) => {
        await page.evaluate((hash) => { location.hash = hash; }, `#/names?q=${encodeURIComponent(name)}`);
        await page.waitForSelector("table.names tbody .address");
        assert.equal(await page.locator("table.names tbody .address").first().innerText(), ip);
        assert.ok(await page.locator("table.names tbody .address").first().isVisible());
      });
    }
  });
});

test("who may change things has buttons, anybody else the command to type", async () => {
  await withMock({}, async (mock, url) => {
    mock.pending = [{ name: "s9", version: "0.1.0", address: "10.0.0.9:1", first_ms: Date.now(), last_ms: Date.now() }];
    await withPage(url, {}, async (page) => {
      await page.getByRole("button", { name: "Accept s9" }).click();
      await page.waitForSelector("dialog[open]");
      await picture(page, "confirm");
      await accessible(page, "dialog");
      await page.keyboard.press("Escape");
      await page.waitForSelector("dialog", { state: "detached" });
      assert.deepEqual(mock.acts, [], "nothing is done without a yes");
      await page.getByRole("button", { name: "Accept s9" }).click();
      await page.locator("dialog button.main").click();
      await page.waitForSelector(".toast.good");
      assert.deepEqual(mock.acts, [{ do: "switch.accept", name: "s9" }]);
      await page.waitForFunction(() => document.querySelectorAll(".graph .switch").length === 12);
    });
    mock.may_change = false;
    mock.pending = [{ name: "s 9'", version: "0.1.0", address: "10.0.0.9:1", first_ms: Date.now(), last_ms: Date.now() }];
    await withPage(url, {}, async (page) => {
      await page.waitForSelector("#attention .command");
      assert.equal(await page.locator("#attention .command").innerText(), "fibula switch accept 's 9'\\'''");
      assert.equal(await page.locator("#attention button", { hasText: "Accept" }).count(), 0);
      // No view has a button that changes anything.
      for (const [route, typed] of [["#/switch?name=chicago", /^fibula switch drain chicago$/], ["#/link?a=chicago&port=2", /^fibula link drain \S+:\d+$/]]) {
        await visit(page, url, route);
        await page.waitForSelector("#panel .command");
        assert.match(await page.locator("#panel .command").first().innerText(), typed);
        assert.equal(await page.getByRole("button", { name: /Drain|Take|Accept/ }).count(), 0, route);
      }
    });
    assert.equal(mock.acts.length, 1, "nothing more was asked for");
  });
});

test("hosts that wait are listed with where and since, fifty of them, and accepted by who may", async () => {
  await withMock({}, async (mock, url) => {
    mock.waiting = Array.from({ length: 53 }, (_, i) => ({ name: `02:00:00:00:01:${String(i).padStart(2, "0")}`, ip: i === 0 ? "10.0.0.9" : "", at: { switch: "denver", port: 5 }, tenant: i === 1 ? 7 : 0, first_ms: Date.now() - 400_000, why: "the port, or the controller, only reports" }));
    await withPage(url, {}, async (page) => {
      const cards = page.locator(".card[data-kind=host]");
      await cards.first().waitFor();
      assert.equal(await cards.count(), 50);
      assert.match(await cards.first().innerText(), /02:00:00:00:01:00 waits to be accepted\s+At denver:5, address 10\.0\.0\.9: the port, or the controller, only reports\s+first seen 6 min ago/);
      assert.match(await cards.nth(1).innerText(), /At denver:5, tenant 7:/);
      assert.match(await page.locator(".card[data-kind=hosts]").innerText(), /3 more hosts wait to be accepted\s+fibula host seen/);
      assert.equal(await page.title(), "Network – fibula", "a port may be meant to report, so none of this is urgent");
      await fits(page, "hosts that wait");
      await accessible(page, "hosts that wait");
      await picture(page, "hosts");
      await page.getByRole("button", { name: "Accept 02:00:00:00:01:00" }).click();
      assert.match(await page.locator("dialog").innerText(), /becomes a name at denver:5, address 10\.0\.0\.9/);
      await page.locator("dialog button.main").click();
      await page.waitForSelector(".toast.good");
      assert.deepEqual(mock.acts, [{ do: "host.accept", name: "02:00:00:00:01:00" }]);
      await page.waitForFunction(() => document.querySelector(".card[data-kind=hosts]").textContent.includes("2 more hosts wait"));
      assert.equal(await cards.count(), 50);
    });
    mock.may_change = false;
    mock.waiting.splice(1);
    await withPage(url, {}, async (page) => {
      await page.waitForSelector(".card[data-kind=host] .command");
      assert.equal(await page.locator(".card[data-kind=host] .command").innerText(), "fibula host accept 02:00:00:00:01:01");
      assert.equal(await page.locator(".card[data-kind=hosts]").count(), 0);
    });
  });
});

test("a way has the entry of each switch, and says that hops behind several ways are those of the first", async () => {
  await withMock({}, async (mock, url) => {
    const route = `#/name?name=${encodeURIComponent(NAME)}&from=seattle`;
    for (const spreads of [false, true]) {
      mock.spreads = spreads;
      await withPage(url, {}, async (page) => {
        await visit(page, url, route);
        await page.waitForSelector(".hops li");
        assert.match(await page.locator(".hops li").first().innerText(), spreads ? /value 2: ports:\d+\|77/ : /value 2: port:\d+/);
        assert.equal(await page.getByText("Where a switch has several paths").isVisible(), spreads);
        await fits(page, "a way");
      });
    }
  });
});

test("the keyboard alone reaches everything, and one sees where it is", async () => {
  await withMock({ names: 100_000 }, async (mock, url) => {
    await withPage(url, { reducedMotion: "reduce" }, async (page) => {
      const focused = () => page.evaluate(() => { const at = document.activeElement; return at.id || at.getAttribute("aria-label") || at.textContent; });
      const seen = () => page.evaluate(() => {
        const at = document.activeElement;
        const ring = at.querySelector?.(":scope .ring");
        return ring ? getComputedStyle(ring).stroke !== "none" : getComputedStyle(at).outlineStyle !== "none";
      });
      await page.keyboard.press("Tab");
      assert.equal(await focused(), "skip");
      await page.keyboard.press("Enter");
      assert.equal(await focused(), "main");
      for (let i = 0; !(await focused()).startsWith("atlanta"); i += 1) {
        assert.ok(i < 10, `the drawing is ${i} tabs away from the content`);
        await page.keyboard.press("Tab");
        assert.ok(await seen(), `the focus is seen at ${await focused()}`);
      }
      const visited = new Set();
      for (const key of ["ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowRight"]) {
        await page.keyboard.press(key);
        visited.add(await focused());
        assert.ok(await seen());
      }
      assert.ok(visited.size >= 4, `arrows came to ${[...visited]}`);
      await picture(page, "keyboard");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".drops");
      await page.keyboard.press("/");
      assert.equal(await focused(), "query");
      await page.keyboard.type("02:00:00:00:00:1");
      await page.waitForFunction(() => document.querySelector("table.names a")?.textContent.startsWith("02:00:00:00:00:1"));
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowDown");
      assert.ok(await seen());
      await page.keyboard.press("Enter");
      await page.waitForSelector(".hops li");
      assert.match(page.url(), /#\/name\?name=/);
    });
  });
});

test("the title says how much is wrong, and the focus is seen on what a key brings up", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, {}, async (page) => {
      await page.waitForFunction(() => document.title === "Network – fibula");
      mock.cut(5);
      await page.waitForFunction(() => document.title === "(1) Network – fibula");
      mock.pending = [{ name: "s9", version: "", address: "", first_ms: 0, last_ms: 0 }];
      await page.locator("#nav a", { hasText: "Events" }).focus();
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.title === "(2) Events – fibula");
      // Moved by the page, but after a key: whoever sees the page is to see where he is.
      assert.equal(await page.evaluate(() => document.activeElement.textContent), "Events");
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none");
      await page.keyboard.press("Tab");
      await page.locator("#skip").focus();
      await page.keyboard.press("Enter");
      assert.equal(await page.evaluate(() => `${document.activeElement.id} ${getComputedStyle(document.activeElement).outlineStyle}`), "main solid");
    });
  });
});

test("times have their zone, a search that finds nothing says so, and what was chosen in a list is in its address", async () => {
  await withMock({}, async (mock, url) => {
    mock.tell("switch", "n".repeat(200), "x".repeat(400), "warning");
    for (const [timezoneId, said] of [["Europe/Berlin", /browser: Europe\/Berlin, GMT\+[12]\./], ["UTC", /browser: UTC\./]]) {
      await withPage(url, { timezoneId }, async (page) => {
        await visit(page, url, "#/events");
        assert.match(await page.locator("#panel").innerText(), said);
        assert.match(await page.locator(".event .clock").first().getAttribute("title"), timezoneId === "UTC" ? /UTC/ : /CES?T|GMT\+[12]/);
        await fits(page, "a long event");
      });
    }
    await withPage(url, {}, async (page) => {
      await page.locator("#query").fill("zz");
      await page.waitForFunction(() => document.querySelector("#panel h1").textContent === "No name found");
      assert.match(await page.locator("#panel .note").innerText(), /No names that begin with zz\. A search matches the beginning of names/);
      await page.locator("#query").fill("02");
      await page.waitForFunction(() => document.querySelector("#panel h1").textContent === "Names found");
      await visit(page, url, "#/inventory");
      await page.locator("#filter").fill("denver");
      await page.locator("#only").check();
      assert.match(await page.locator("#panel").innerText(), /Switches\s+none of these/);
      assert.match(page.url(), /#\/inventory\?filter=denver&only=attention$/);
      await page.locator("#only").uncheck();
      await page.locator("tbody a", { hasText: "denver" }).first().click();
      await page.waitForSelector(".drops");
      await page.goBack();
      await page.waitForSelector("#filter");
      assert.equal(await page.locator("#filter").inputValue(), "denver");
      assert.equal(await page.locator("table").first().locator("tbody tr").count(), 1);
    });
  });
});

test("a theme that was chosen stays, whatever the system's", async () => {
  await withMock({}, async (mock, url) => {
    await withPage(url, { colorScheme: "light" }, async (page) => {
      const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const light = await ground();
      await page.locator("#theme").click();
      await page.locator("#theme").click();
      assert.equal(await page.locator("#theme").innerText(), "Theme: dark");
      const dark = await ground();
      assert.notEqual(dark, light);
      await page.reload();
      assert.equal(await ground(), dark);
    });
  });
});

test("names that mean harm are text wherever they appear", async () => {
  await withMock({ hostile: true }, async (mock, url) => {
    mock.may_change = false;
    const to = (view, params) => `#/${view}?${new URLSearchParams(params)}`;
    await withPage(url, {}, async (page) => {
      const bad = HOSTILE.slice(0, 11);
      const routes = ["#/", "#/events", "#/inventory", ...bad.flatMap((name, i) => [to("names", { q: name.slice(0, 200) }), to("name", { name, from: HOSTILE[(i + 3) % 11] }), to("switch", { name })]), to("link", { a: HOSTILE[0], port: "1" }), "#/<script>window.harmed=1</script>", "#/names?q=%E0%A4%A"];
      for (const route of routes) {
        await page.evaluate((hash) => { location.hash = hash; }, route);
        await page.waitForFunction(() => document.querySelector("#panel h1, #panel h2"));
        await page.waitForFunction(() => ![...document.querySelectorAll("#panel .note[role=status]")].some((each) => /^(|Asking …|Looking for it …)$/.test(each.textContent) && !each.hidden));
        await fits(page, route.slice(0, 60));
      }
      assert.equal(await page.locator("#panel img, #panel script, main iframe, #panel style").count(), 0);
      await page.evaluate(() => { location.hash = "#/"; });
      await page.waitForSelector("#attention .card");
      await picture(page, "hostile");
      await page.evaluate(() => { location.hash = "#/names"; });
      await page.locator("#query").fill("<img");
      await page.waitForFunction((name) => document.querySelector("table.names tbody a")?.textContent === name, HOSTILE[0]);
      await picture(page, "hostile-names");
      await accessible(page, "hostile names");
    });
  });
});

test("events are listed, filtered by kind, and held while one reads", async () => {
  await withMock({}, async (mock, url) => {
    mock.cut(2);
    mock.tell("host", "02:00:00:00:00:99", "was learnt at denver:100", "info");
    await withPage(url, {}, async (page) => {
      await visit(page, url, "#/events");
      await page.waitForFunction(() => document.querySelectorAll(".events .event").length === 3);
      await page.getByLabel("Hosts").uncheck();
      assert.equal(await page.locator(".events .event").count(), 2);
      assert.match(page.url(), /without=host$/);
      await page.getByRole("button", { name: "Pause" }).click();
      mock.cut(2, false);
      await page.waitForFunction(() => document.body.textContent.includes("1 newer"));
      assert.equal(await page.locator(".events .event").count(), 2);
      await page.getByRole("button", { name: "Go on" }).click();
      assert.equal(await page.locator(".events .event").count(), 3);
    });
  });
});

test("a follower says who leads", async () => {
  await withMock({}, async (mock, url) => {
    mock.follows = "http://10.0.0.2:4600";
    await withPage(url, {}, async (page) => {
      assert.match(await page.locator(".banner").innerText(), /follows another one[\s\S]*10\.0\.0\.2:4600 leads/);
    });
  });
});
