"""Tables of rules give the first one that matches, as a list read from its top gives it, and share files with the command."""

import ipaddress
import json
import random
import tempfile
import unittest
import warnings
from pathlib import Path

import fibula
import numpy as np
from support import run

LIST = """# first match wins
deny tcp from 10.6.0.0/16 to any port 22-23
permit tcp to 192.0.2.0/24
permit udp from 2001:db8::/32
deny icmp
"""


def drawn(seed=1, n=200):
    """Rules and flows of both versions of IP that often meet: lines, and for each flow its text and its bytes."""
    draw = random.Random(seed)
    nets = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "192.0.2.0/25", "fd00::/8", "fd00:1::/32", "fd00:1::/64"]
    lines = []
    for _ in range(n):
        version = draw.choice((4, 6))
        some = [net for net in nets if (":" in net) == (version == 6)]
        words = [draw.choice(("permit", "deny", "count")), draw.choice(("tcp", "udp"))]
        for side in ("from", "to"):
            if draw.random() < 0.9:
                words += [side, draw.choice(some)]
                if draw.random() < 0.8:
                    low = draw.randint(0, 30)
                    words += ["port", f"{low}-{low + draw.randint(0, 9)}"]
        if len(words) > 2:
            lines.append(" ".join(words))
    flows = []
    for _ in range(3000):
        version = draw.choice((4, 6))
        some = [ipaddress.ip_network(net) for net in nets if (":" in net) == (version == 6)]
        ends = [draw.choice(some)[draw.randrange(4)] for _ in range(2)]
        ports = [draw.randint(0, 40) for _ in range(2)]
        # No rule is for the last one.
        protocol = draw.choice(("tcp", "udp", "tcp", "udp", "sctp"))
        shown = [f"[{end}]" if version == 6 else str(end) for end in ends]
        text = f"{shown[0]}:{ports[0]}->{shown[1]}:{ports[1]}/{protocol}"
        data = ends[0].packed + ends[1].packed + bytes([{"tcp": 6, "udp": 17, "sctp": 132}[protocol]]) + b"".join(port.to_bytes(2, "big") for port in ports)
        flows.append((text, data, ends, ports, protocol))
    return lines, flows


def first(lines, ends, ports, protocol):
    """The number of the first line that matches, from 1, by reading them."""
    for number, line in enumerate(lines, 1):
        _, wanted, *words = line.split()
        sides = {"from": (ends[0], ports[0]), "to": (ends[1], ports[1])}
        matches, side = wanted == protocol, None
        while words:
            word, value, *words = words
            if word == "port":
                low, high = map(int, value.split("-"))
                matches &= low <= side[1] <= high
            else:
                side, net = sides[word], ipaddress.ip_network(value)
                matches &= side[0].version == net.version and side[0] in net
        if matches:
            return number
    return 0


class Rules(unittest.TestCase):
    def test_the_first_rule_that_matches_answers_for_flows_in_every_form(self):
        lines, flows = drawn()
        expected = [first(lines, *flow[2:]) for flow in flows]
        self.assertGreater(len(set(expected)), 10, "rules that answer")
        self.assertGreater(expected.count(0), 300, "flows without a rule")
        actions = ("permit", "deny", "count")
        built = fibula.RuleTable.build(lines, actions=actions)
        self.assertEqual(len(built), len(lines))
        for table in (built, fibula.RuleTable.build("\n".join(lines), actions="permit, deny,count"), fibula.RuleTable.from_bytes(built.to_bytes())):
            self.assertEqual(table.lookup_batch([text for text, *_ in flows]).tolist(), expected)
            self.assertEqual(table.lookup_batch([data for _, data, *_ in flows]).tolist(), expected)
            for width in (13, 37):
                some = [(data, number) for (_, data, *_), number in zip(flows, expected) if len(data) == width]
                array = np.frombuffer(b"".join(data for data, _ in some), f"V{width}")
                numbers = [number for _, number in some]
                out = np.empty(len(some), np.uint32)
                self.assertIs(table.lookup_batch(array, out=out), out)
                self.assertEqual(out.tolist(), numbers)
                self.assertEqual(table.lookup_batch(array[::2]).tolist(), numbers[::2])
                self.assertEqual(table.lookup_batch(array.view(np.uint8).reshape(-1, width)).tolist(), numbers)

    def test_a_rule_is_told_with_its_line_and_its_action(self):
        table = fibula.RuleTable.build(LIST)
        self.assertEqual(table.rules, ((2, "deny"), (3, "permit"), (4, "permit"), (5, "deny")))
        rule = table.lookup("10.6.1.1:999->192.0.2.1:22/tcp")
        self.assertEqual((rule, rule.line, rule.action), ((2, "deny"), 2, "deny"))
        self.assertEqual(table.lookup("[2001:db8::1]:1->[::2]:2/udp").line, 4)
        self.assertIsNone(table.lookup("10.7.1.1:999->192.0.3.1:22/tcp"))
        self.assertEqual(len(fibula.RuleTable.build("")), 0)
        self.assertIn("4 rules", repr(table))

    def test_the_command_and_python_read_each_others_files(self):
        with tempfile.TemporaryDirectory() as directory:
            text, of_command, of_python = (Path(directory, name) for name in ("a.txt", "a.rules", "b.rules"))
            text.write_text(LIST)
            run("rules", "build", text, "-o", of_command)
            table = fibula.RuleTable.load(of_command)
            self.assertEqual(table.lookup("1.2.3.4:0->5.6.7.8:0/icmp"), fibula.Rule(5, "deny"))
            fibula.RuleTable.build(LIST.splitlines()).save(of_python)
            self.assertEqual(of_python.stat().st_mode & 0o777, 0o600)
            answer = json.loads(run("-j", "rules", "lookup", of_python, "10.6.1.1:9->192.0.2.1:22/tcp"))
            self.assertEqual((answer["action"], answer["line"]), ("deny", 2))

    def test_what_is_no_rule_no_flow_or_no_file_is_said(self):
        table = fibula.RuleTable.build(LIST)
        for wrong, kind, message in (
            (lambda: fibula.RuleTable.build("permit any\ndeny tpc"), ValueError, "line 2: "),
            (lambda: fibula.RuleTable.build("# a\npermt tcp"), ValueError, "line 2: `permt` is not an action of this list: write permit or deny; for other actions"),
            (lambda: fibula.RuleTable.build("permit"), ValueError, "line 1: `permit` does not say for what"),
            (lambda: fibula.RuleTable.build("count tcp", actions=("count", "7")), ValueError, "`7` is not an action"),
            (lambda: fibula.RuleTable.build([b"deny"]), TypeError, "rule 0 is a bytes: give str"),
            (lambda: fibula.RuleTable.build(["deny\npermit"]), ValueError, "rule 0 has several lines"),
            (lambda: fibula.RuleTable.from_bytes(b"x"), ValueError, "not a file of rules"),
            (lambda: fibula.RuleTable.from_bytes(table.to_bytes()[:-1] + b"x"), ValueError, "damaged"),
            (lambda: fibula.RuleTable(None), TypeError, "RuleTable.build"),
            (lambda: table.lookup("10.0.0.1"), ValueError, "name 0: "),
            (lambda: table.lookup_batch("10.0.0.1:1->10.0.0.2:2/tcp"), TypeError, "one name where several belong"),
            (lambda: table.lookup_batch(np.zeros(3, "V12")), ValueError, "S13"),
            (lambda: table.lookup_batch(np.zeros(3, "V13"), out=np.zeros(2, np.uint32)), ValueError, "out is"),
            (lambda: table.lookup_batch(np.zeros(3, "V13"), out=np.zeros(3, np.uint64)), TypeError, "out is"),
        ):
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                wrong()

    def test_flags_that_are_not_compared_are_said(self):
        line = "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\t0x1000/0x1000"
        with self.assertWarnsRegex(UserWarning, "1 rules have TCP flags"):
            table = fibula.RuleTable.build(line)
        self.assertEqual(table.lookup("10.0.0.1:1->1.1.1.1:80/tcp"), fibula.Rule(1, "permit"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fibula.RuleTable.build(LIST)


if __name__ == "__main__":
    unittest.main()
