"""The client does to a real controller what it says, and says what the controller refuses."""

import asyncio
import unittest

import fibula.controller as client
from fibula.controller import Credentials, End, Host, Name
from support import Controller, environment, impostor, macs, run, texts


class Records(unittest.TestCase):
    def test_what_a_switch_counted_is_a_record_with_its_ports_and_drops(self):
        rates = client.wire.message("Rates", age_ms=7, frames_in=2.5, drops=1.5)
        port = client.wire.message("PortCounters", port=3, device="eth3", role="host", up=True, frames_in=9, rates=rates)
        drop = client.wire.message("DropCount", reason="alien", total=4, a_second=0.5, why="no host has it")
        counters = client.wire.message("Counters", ports=[port], drops=[drop], received=9, age_ms=11)
        switch = client.wire.message("Switch", name="s1", sharing=2, drained=True, rates=rates)
        message = client.wire.message("SwitchDetails", switch=switch, counters=counters)
        details = client.records.of(client.SwitchDetails, message)
        self.assertEqual((details.switch.name, details.switch.sharing, details.switch.drained), ("s1", 2, True))
        self.assertEqual((details.switch.rates.drops, details.hosts, details.counters.age_ms), (1.5, (), 11))
        self.assertEqual(details.counters.drops, (client.DropCount("alien", 4, 0.5, "no host has it"),))
        (port,) = details.counters.ports
        self.assertEqual((port.port, port.role, port.frames_in, port.rates.frames_in, port.hellos_lost), (3, "host", 9, 2.5, 0))


class Plain(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        plain = environment()
        plain.__enter__()
        self.addCleanup(plain.__exit__, None, None, None)
        self.site = Controller()
        self.addCleanup(self.site.stop)

    async def connected(self):
        controller = client.Controller(self.site.url)
        await controller.connect()
        self.addAsyncCleanup(controller.close)
        await controller.switches.add("s1")
        await controller.switches.add_many(["s2", "s3"])
        await controller.hosts.add("h1", "s1:1")
        await controller.hosts.add_many([("h2", End("s2", 1)), ("h3", "s3:1")])
        await controller.links.add("s1:9", "s2:9", cost=2, weight=3)
        await controller.links.add_many([("s2:8", "s3:8")])
        return controller

    async def test_the_network_is_as_it_was_described(self):
        controller = await self.connected()
        status = await controller.status()
        self.assertEqual((status.switches, status.hosts, status.links, status.name_kind), (3, 3, 2, "mac"))
        self.assertEqual((status.leader, status.position), ("", None))
        listed = await controller.switches.list()
        self.assertEqual([(one.name, one.connected, one.memory) for one in listed.switches], [(f"s{n}", False, None) for n in (1, 2, 3)])
        self.assertEqual((listed.pending, listed.troubles, listed.switches[0].rates, listed.switches[0].drained), ((), (), None, False))
        details = await controller.switches.get("s1")
        self.assertEqual((details.switch, details.hosts, details.counters), (listed.switches[0], (Host("h1", "s1", 1),), None))
        with self.assertRaises(client.NotThere):
            await controller.switches.get("s9")
        self.assertEqual((await controller.hosts.list()).hosts[0], Host("h1", "s1", 1))
        link = (await controller.links.list()).links[0]
        self.assertEqual((link.a, link.b, link.cost, link.weight, link.up), (End("s1", 9), End("s2", 9), 2, 3, True))
        await controller.links.set("s2:9", cost=7, weight=64, up=False)
        link = (await controller.links.list()).links[0]
        self.assertEqual((link.cost, link.weight, link.up), (7, 64, False))
        self.assertIn('"cost":7', run("-j", "link", "list", "--controller", self.site.url))
        await controller.links.remove("s2:9")
        await controller.hosts.remove("h3")
        await controller.links.remove("s3:8")
        await controller.switches.remove("s3")
        self.assertEqual((await controller.status()).switches, 2)
        self.assertEqual((await controller.rekey()).changed, 0)
        self.assertEqual(await controller.set_drained(False), 0)

    async def test_names_are_put_found_listed_and_removed(self):
        controller = await self.connected()
        names = controller.names
        done = await names.put([("02:00:00:00:00:01", "h1", 0, "10.0.0.1"), Name("02:00:00:00:00:02", "h2")])
        self.assertEqual((done.changed, done.unchanged), (2, 0))
        self.assertEqual(await names.get("02:00:00:00:00:01"), Name("02:00:00:00:00:01", "h1", 0, "10.0.0.1"))
        self.assertEqual((await names.put([("02:00:00:00:00:02", "h2")])).unchanged, 1)
        self.assertEqual((await names.at("10.0.0.1")).name, "02:00:00:00:00:01")
        with self.assertRaises(client.NotThere):
            await names.at("10.0.0.2")
        many = [(name, "h3") for name in texts(macs(2500))[100:]]
        self.assertEqual((await names.import_(many, batch=100)).changed, 2400)
        self.assertEqual([name.name async for name in names.list(page=7)][:3], ["02:00:00:00:00:01", "02:00:00:00:00:02", many[0][0]])
        self.assertEqual(len([name async for name in names.list()]), 2402)
        self.assertEqual(len([name async for name in names.export()]), 2402)
        self.assertEqual([name async for name in names.list(learnt=True)], [])
        self.assertEqual([name.name async for name in names.list(host="h1")], ["02:00:00:00:00:01"])
        self.assertEqual(len([name async for name in names.list(host="h3", page=1000)]), 2400)
        some, more = await names.find("02:00:00:00:00", limit=2)
        self.assertEqual(([name.name for name in some], more), (["02:00:00:00:00:01", "02:00:00:00:00:02"], True))
        self.assertEqual(await names.find("02:00:00:00:ff"), ((), False))

        async def later():
            for name in many[:250]:
                yield Name(name[0], "h1")

        self.assertEqual((await names.import_(later(), batch=100)).changed, 250)
        self.assertEqual((await names.remove(name for name, _ in many)).changed, 2400)
        self.assertEqual((await names.remove([many[0][0]], ignore_missing=True)).unchanged, 1)
        self.assertEqual((await controller.status()).names, 2)
        self.assertIn('"names":2', run("-j", "name", "count", "--controller", self.site.url))

    async def test_refusals_are_exceptions_with_the_controllers_sentence(self):
        controller = await self.connected()
        names, mac = controller.names, "02:00:00:00:00:01"
        await names.put([(mac, "h1")])
        cases = [
            (client.NotThere, "NOT_FOUND", "there is no name", names.get("02:00:00:00:00:09")),
            (client.BadRequest, "INVALID_ARGUMENT", "02:00:00:00:00", names.get("02:00:00:00:00")),
            (client.NotThere, "NOT_FOUND", "no host `h9`", names.put([(mac, "h9")])),
            (client.Refused, "ALREADY_EXISTS", "exists", names.put([(mac, "h2")], only_new=True)),
            (client.Refused, "ALREADY_EXISTS", "already", controller.switches.add("s1")),
            (client.Refused, "FAILED_PRECONDITION", "names are attached", controller.hosts.remove("h1")),
            (client.BadRequest, "INVALID_ARGUMENT", "cost", controller.links.set("s1:9", cost=0)),
            (client.BadRequest, "INVALID_ARGUMENT", "weight is 1 to 64", controller.links.set("s1:9", weight=65)),
            (client.NotThere, "NOT_FOUND", "no switch `s9`", controller.hosts.add("h9", "s9:1")),
        ]
        for kind, code, sentence, work in cases:
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence) as refused:
                await work
            self.assertEqual(refused.exception.code, code)
        wrong = [(name, "h1") for name in texts(macs(30))] + [("02:00:00:00:ff:ff", "h9")]
        with self.assertRaisesRegex(client.ImportStopped, "no host `h9`.*first 30 names were imported") as stopped:
            await names.import_(wrong, batch=10)
        self.assertEqual((stopped.exception.committed, (await controller.status()).names), (30, 30))

    async def test_events_are_told_in_order_and_go_on_after_a_number(self):
        controller = await self.connected()
        told = [event async for event in controller.events(once=True)]
        self.assertEqual([event.sequence for event in told], sorted(event.sequence for event in told))
        last = (await controller.status()).last_event
        self.assertEqual(told[-1].sequence, last)
        self.assertEqual({event.level for event in told} - {"good", "info", "warning", "bad"}, set())
        links = [event.subject async for event in controller.events(kinds=["link"], once=True)]
        self.assertEqual(links, ["s1:9 – s2:9", "s2:8 – s3:8"])
        self.assertEqual([event async for event in controller.events(after=last, once=True)], [])

        # What comes later comes, and whoever has heard enough leaves.
        heard = controller.events(after=last)
        waiting = asyncio.ensure_future(heard.__anext__())
        await controller.switches.add("s4")
        event = await asyncio.wait_for(waiting, 60)
        self.assertEqual((event.kind, event.subject, event.missed), ("switch", "s4", 0))
        self.assertGreater(event.sequence, last)
        await heard.aclose()
        with self.assertRaisesRegex(client.BadRequest, "no events of kind `weather`"):
            [event async for event in controller.events(kinds=["weather"], once=True)]
        with self.assertRaisesRegex(TypeError, "one kind where several belong"):
            [event async for event in controller.events(kinds="link")]

        # A controller that goes away breaks them.
        heard = controller.events(after=event.sequence)
        waiting = asyncio.ensure_future(heard.__anext__())
        await controller.status()
        self.site.process.kill()
        with self.assertRaises(client.Unreachable):
            await asyncio.wait_for(waiting, 60)

    async def test_a_name_is_traced_from_one_switch_or_from_all(self):
        controller = await self.connected()
        mac = "02:00:00:00:00:01"
        await controller.names.put([(mac, "h1")])
        traced = await controller.trace(mac, start="s2")
        self.assertEqual((traced.record.name, traced.record.host, traced.at), (mac, "h1", End("s1", 1)))
        (way,) = traced.paths
        self.assertEqual((way.start, way.end, [hop.switch for hop in way.hops]), ("s2", "delivered", ["s2", "s1"]))
        self.assertEqual([hop.port for hop in way.hops], [9, 1])
        for hop in way.hops:
            self.assertTrue(hop.value and hop.action.startswith(f"port:{hop.port}"), hop)
        self.assertIn(way.sentence, run("trace", mac, "--from", "s2", "--controller", self.site.url))
        self.assertEqual([way.start for way in (await controller.trace(mac)).paths], ["s1", "s2", "s3"])
        nowhere = await controller.trace("02:00:00:00:00:02", start="s1")
        self.assertEqual((nowhere.record, nowhere.at, nowhere.paths[0].end), (None, None, "dropped"))
        self.assertEqual((nowhere.paths[0].hops[0].value, nowhere.paths[0].hops[0].action), (None, ""))
        with self.assertRaisesRegex(client.NotThere, "no switch `s9`"):
            await controller.trace(mac, start="s9")

    async def test_what_is_logged_is_shown_and_changed(self):
        controller = await self.connected()
        before = await controller.log()
        changed = await controller.log("info,h2=warn")
        self.assertEqual((changed.filter, changed.before), ("info,h2=warn", before.filter))
        self.assertEqual((await controller.log()).filter, "info,h2=warn")
        with self.assertRaisesRegex(client.BadRequest, "`degub`"):
            await controller.log("degub")
        with self.assertRaisesRegex(client.Refused, "`s1` is not connected"):
            await controller.switches.log("s1")
        with self.assertRaisesRegex(client.NotThere, "no switch `s9`"):
            await controller.switches.log("s9", "debug")

    async def test_wrong_calls_are_said_before_anything_is_sent(self):
        controller = await self.connected()
        cases = [
            (ValueError, "like s1:3", controller.hosts.add("h", "s1")),
            (TypeError, "is not a name", controller.names.put([("x",)])),
            (TypeError, "where several belong", controller.names.remove("02:00:00:00:00:01")),
            (ValueError, "say what to change", controller.links.set("s1:9")),
            (ValueError, "batch is 0", controller.names.import_([], batch=0)),
        ]
        for kind, sentence, work in cases:
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence):
                await work
        for url in ("ftp://x:1", "http://x", "nowhere", "unix:here"):
            with self.assertRaisesRegex(ValueError, "is not the URL of a controller"):
                await client.Controller(url).connect()
        with self.assertRaisesRegex(RuntimeError, "not connected"):
            await client.Controller(self.site.url).status()
        with self.assertRaisesRegex(ValueError, "takes a certificate"):
            await client.Controller(self.site.url.replace("http:", "https:")).connect()

    async def test_whoever_does_not_answer_is_unreachable(self):
        self.site.process.kill()
        self.site.process.wait()
        with self.assertRaisesRegex(client.Unreachable, "no controller answers at http://127.0.0.1.*is `fibula controller` running"):
            await client.Controller(self.site.url, timeout=10).connect()

    async def test_of_several_controllers_the_one_that_answers_is_taken(self):
        async with client.Controller(f"http://127.0.0.1:1, {self.site.url}") as controller:
            self.assertEqual(controller.url, self.site.url)
            self.assertEqual((await controller.status()).names, 0)


class Secure(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Controller(tls=True)
        cls.addClassCleanup(cls.site.stop)

    async def test_certificates_say_who_may_do_what(self):
        admin = Credentials.load(self.site.credentials("admin"))
        async with client.Controller(self.site.url, credentials=admin) as controller:
            self.assertEqual((await controller.switches.add("s1")).changed, 1)
        reader = Credentials.load(self.site.credentials("reader"))
        async with client.Controller(self.site.url, credentials=reader) as controller:
            self.assertEqual((await controller.status()).switches, 1)
            with self.assertRaisesRegex(client.NotAllowed, "reader"):
                await controller.switches.add("s2")

    async def test_the_certificate_of_the_command_is_the_default(self):
        with environment(FIBULA_TLS=self.site.credentials("reader")):
            async with client.Controller(self.site.address) as controller:
                self.assertEqual((await controller.status()).name_kind, "mac")
        with environment(FIBULA_KEY="/nonexistent/key.pem"), self.assertRaisesRegex(ValueError, "no cert.pem: give a directory"):
            client.Controller(self.site.address)

    async def test_who_is_no_controller_is_not_taken_for_one(self):
        pki = ["--pki", self.site.directory / "pki"]
        switch, operator = ("switch", "s1"), ("operator", "mallory", "--role", "admin")
        # A switch is a server as well; the certificate of an operator is for none.
        for said, (kind, name, *more) in (("another server answers", switch), ("unsuitable certificate purpose", operator)):
            run("pki", *pki, "issue", kind, name, *more)
            with self.subTest(kind), impostor(self.site.directory / "pki" / kind / name) as (address, asked):
                admin = Credentials.load(self.site.credentials("admin"))
                with self.assertRaisesRegex(client.Unreachable, said):
                    await client.Controller(f"https://{address}", credentials=admin, timeout=10).connect()
            self.assertEqual(asked(), b"", "nothing is asked of it")

    async def test_a_controller_that_comes_back_with_another_certificate_is_asked(self):
        site = Controller(tls=True)
        self.addCleanup(site.stop)
        admin = Credentials.load(site.credentials("admin"))
        async with client.Controller(site.url, credentials=admin, timeout=10) as controller:
            await controller.switches.add("s1")
            run("pki", "--pki", site.directory / "pki", "renew", "controller", "c1")
            site.restart()
            for _ in range(100):
                # Until the connection that broke is made anew. Many ask at once, and all of them get an answer.
                answers = await asyncio.gather(*(controller.status() for _ in range(20)), return_exceptions=True)
                for answer in answers:
                    if isinstance(answer, client.Unreachable):
                        continue
                    self.assertEqual(getattr(answer, "switches", answer), 1)
                if not any(isinstance(answer, client.Unreachable) for answer in answers):
                    break
                await asyncio.sleep(0.1)
            else:
                self.fail("the renewed certificate is not trusted")

    async def test_one_of_many_requests_opens_another_channel_for_a_renewed_certificate(self):
        admin = Credentials.load(self.site.credentials("admin"))
        async with client.Controller(self.site.url, credentials=admin, timeout=10) as controller:
            opened, open_one = [], controller._open

            async def counted(url):
                opened.append(url)
                await open_one(url)

            class Failed:
                def details(self):
                    return "CERTIFICATE_VERIFY_FAILED"

            controller._open = counted
            old = controller._channel
            asked = (controller._has_another_certificate(old, Failed()) for _ in range(20))
            self.assertEqual(await asyncio.gather(*asked), [True] * 20)
            self.assertEqual(opened, [controller.url])
            self.assertIsNot(controller._channel, old)
            self.assertEqual((await controller.status()).name_kind, "mac")
            # Closed meanwhile, it stays so.
            before = controller._channel
            await controller.close()
            self.assertFalse(await controller._has_another_certificate(before, Failed()))
            self.assertIsNone(controller._channel)

    async def test_credentials_are_read_before_anybody_is_asked(self):
        admin = Credentials.load(self.site.credentials("admin"))
        told = Credentials(admin.cert, admin.key, "# Zertifizierungsstelle für Käse\n".encode() + admin.ca)
        async with client.Controller(self.site.url, credentials=told) as controller:
            self.assertEqual((await controller.status()).name_kind, "mac")
        other = Credentials.load(self.site.credentials("reader"))
        for wrong, said in (
            (Credentials(admin.cert, b"no key", admin.ca), "cert.pem and key.pem"),
            (Credentials(admin.cert, other.key, admin.ca), "cert.pem and key.pem"),
            (Credentials(admin.cert, admin.key, b""), "ca.pem"),
            (Credentials(admin.cert, admin.key, b"no certificate"), "ca.pem"),
        ):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                await client.Controller(self.site.url, credentials=wrong).connect()

    async def test_servers_of_other_authorities_are_not_trusted(self):
        other = self.site.directory / "other"
        run("pki", "--pki", other, "init")
        run("pki", "--pki", other, "issue", "operator", "admin", "--role", "admin")
        stranger = Credentials.load(other / "operator/admin")
        with self.assertRaisesRegex(client.Unreachable, "no controller answers at https://"):
            await client.Controller(self.site.url, credentials=stranger, timeout=10).connect()


if __name__ == "__main__":
    unittest.main()
