"""Tables of prefixes give the longest one, as the standard library finds it, and share files with the command."""

import ipaddress
import random
import tempfile
import unittest
from pathlib import Path

import fibula
import numpy as np
from support import run


def routes(seed=1, n=300):
    draw = random.Random(seed)
    found = {"0.0.0.0/0": "default"}
    while len(found) < n:
        length = draw.randint(4, 32)
        net = ipaddress.ip_network((draw.getrandbits(8) << 24 | draw.getrandbits(24), length), strict=False)
        found[str(net)] = f"eth{draw.randint(0, 20)}"
        length = draw.randint(16, 128)
        net = ipaddress.ip_network((0xFD << 120 | draw.getrandbits(12) << 100 | draw.getrandbits(100), length), strict=False)
        found[str(net)] = f"eth{draw.randint(0, 20)}"
    return found


def longest(found, address):
    address = ipaddress.ip_address(address)
    best = max(
        (net.prefixlen, hop)
        for net, hop in ((ipaddress.ip_network(net), hop) for net, hop in found.items())
        if net.version == address.version and address in net
    ) if any(address in ipaddress.ip_network(net) for net in found if (":" in net) == (address.version == 6)) else None
    return best and best[1]


class Prefixes(unittest.TestCase):
    def test_the_longest_prefix_is_found_in_every_design(self):
        found = routes()
        draw = random.Random(2)
        asked = [str(ipaddress.ip_network(net)[draw.randrange(2)]) for net in found if not net.endswith(("/32", "/128"))]
        asked += [str(ipaddress.IPv4Address(draw.getrandbits(32))) for _ in range(100)] + ["::1"]
        expected = [longest(found, address) for address in asked]
        for design in ("trie", "bloom", "bloom-pushed"):
            with self.subTest(design):
                table = fibula.PrefixTable.build(found, list(found.values()), design=design)
                read = fibula.PrefixTable.from_bytes(table.to_bytes())
                for one in (table, read):
                    got = [one.next_hops[number - 1] if number else None for number in one.lookup_batch(asked)]
                    self.assertEqual(got, expected)
                self.assertEqual((len(read), read.design), (len(found), design))

    def test_all_forms_of_addresses_are_the_same(self):
        table = fibula.PrefixTable.build(["10.0.0.0/8", "10.1.0.0/16", "fd00::/8"], ["a", "b", "c"])
        texts = ["10.0.0.1", "10.1.0.1", "11.0.0.1"]
        expected = [1, 2, 0]
        numbers = np.array([int(ipaddress.ip_address(text)) for text in texts], np.uint32)
        out = np.empty(3, np.uint32)
        for form in (texts, numbers, numbers.astype(">u4").view("S4"), numbers.astype(">u4").view(np.uint8).reshape(3, 4)):
            self.assertIs(table.lookup_batch(form, out=out), out)
            self.assertEqual(out.tolist(), expected)
        six = np.frombuffer(ipaddress.ip_address("fd00::1").packed + bytes(16), np.uint8)
        self.assertEqual(table.lookup_batch(six.reshape(2, 16)).tolist(), [3, 0])
        self.assertEqual(table.lookup_batch(six.view("S16")).tolist(), [3, 0])
        self.assertEqual(table.lookup_batch(["fd00::7", "10.1.2.3", "::"]).tolist(), [3, 2, 0])
        self.assertEqual((table.lookup("10.1.2.3"), table.lookup("::")), ("b", None))
        many = np.arange(5000, dtype=np.uint32) + numbers[1]
        self.assertTrue((table.lookup_batch(many) == 2).all())

    def test_the_command_and_python_read_each_others_files(self):
        found = routes(3)
        with tempfile.TemporaryDirectory() as directory:
            listed, theirs, ours = (Path(directory) / name for name in ("list", "theirs", "ours"))
            listed.write_text("".join(f"{net},{hop}\n" for net, hop in found.items()))
            asked = [str(ipaddress.ip_network(net)[0]) for net in found] + ["::1"]
            for design in ("trie", "bloom", "bloom-pushed"):
                run("lpm", "build", listed, "--out", theirs, "--design", design)
                fibula.PrefixTable.build(found, list(found.values()), design=design).save(ours)
                read = fibula.PrefixTable.load(theirs)
                self.assertEqual(read.design, design)
                for path in (theirs, ours):
                    said = run("lpm", "lookup", path, input="\n".join(asked)).splitlines()
                    self.assertEqual(said, [f"{address},{read.lookup(address) or '-'}" for address in asked])

    def test_wrong_tables_and_addresses_are_said(self):
        build = fibula.PrefixTable.build
        table = build(["10.0.0.0/8"], "a")
        cases = [
            (ValueError, "prefix 1: `10.0.0.1` has no length", lambda: build(["10.0.0.0/8", "10.0.0.1"], "a")),
            (ValueError, "twice", lambda: build(["10.0.0.0/8"] * 2, "a")),
            (ValueError, "2 next hops for 1 prefixes", lambda: build(["10.0.0.0/8"], ["a", "b"])),
            (ValueError, "no design `x`", lambda: build(["10.0.0.0/8"], "a", design="x")),
            (ValueError, "not a file of prefixes", lambda: fibula.PrefixTable.from_bytes(b"something")),
            (TypeError, "prefix 0 is a int", lambda: build([1], "a")),
            (TypeError, "big-endian", lambda: table.lookup_batch(np.zeros(3, ">u4"))),
            (TypeError, "dtype '<u8'", lambda: table.lookup_batch(np.zeros(3, np.uint64))),
            (ValueError, r"shape \(3, 5\)", lambda: table.lookup_batch(np.zeros((3, 5), np.uint8))),
            (TypeError, "address 0 is a int", lambda: table.lookup_batch([1])),
            (ValueError, "name 0: ", lambda: table.lookup_batch(["10.0.0.300"])),
        ]
        for error, pattern, call in cases:
            with self.subTest(pattern), self.assertRaisesRegex(error, pattern):
                call()


if __name__ == "__main__":
    unittest.main()
