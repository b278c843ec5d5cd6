"""Filters hold every name, of any layout, and share files with the command."""

import tempfile
import unittest
from pathlib import Path

import fibula
import numpy as np
from support import macs, run, texts

N = 2000


class Filters(unittest.TestCase):
    def test_every_layout_holds_all_names_and_few_others(self):
        names, others = macs(N), macs(10 * N)[N:]
        for layout in fibula.LAYOUTS:
            for counters in (None, 4, 8):
                with self.subTest(f"{layout} {counters}"):
                    made = fibula.Filter.build(names, layout=layout, fp=0.01, counters=counters)
                    read = fibula.Filter.from_bytes(made.to_bytes())
                    self.assertTrue(made.contains(names).all() and read.contains(names).all())
                    found = made.contains(others)
                    np.testing.assert_array_equal(read.contains(others), found)
                    # Names in a row are not at random for address hashing.
                    if layout != "address-hashing":
                        self.assertLess(found.mean(), 0.02)
                        self.assertLess(made.false_positive_rate, 0.02)
                    self.assertEqual((len(read), read.layout, read.counters), (N, layout, counters or 0))

    def test_names_are_removed_where_there_are_counters(self):
        names = macs(N)
        made = fibula.Filter.build(names, counters=4, fp=0.001)
        self.assertTrue(made.remove(names[::2]).all())
        self.assertTrue(made.contains(names[1::2]).all())
        self.assertLess(made.contains(names[::2]).mean(), 0.01)
        self.assertEqual(len(made), N // 2)
        with self.assertRaisesRegex(ValueError, "without counters.*counters=4"):
            fibula.Filter.build(names).remove(names)

    def test_filters_that_are_alike_have_a_union(self):
        names = macs(N)
        for counters in (None, 4):
            one = fibula.Filter.build(names[: N // 2], capacity=N, counters=counters)
            other = fibula.Filter.build(names[N // 2 :], like=one)
            self.assertFalse(one.contains(names).all())
            one.update(other)
            self.assertTrue(one.contains(names).all())
            self.assertEqual(len(one), N)
            with self.assertRaisesRegex(ValueError, "like="):
                one.update(fibula.Filter.build(names, counters=counters))
        with self.assertRaisesRegex(TypeError, "not a filter"):
            one.update(names)

    def test_one_name_is_asked_with_in(self):
        made = fibula.Filter.build(["/a", "/b"], kind="text", fp=1e-6)
        self.assertTrue("/a" in made and b"/b" in made)
        self.assertFalse("/c" in made)
        out = np.zeros(2, np.bool_)
        self.assertIs(made.contains(["/a", "/c"], out=out), out)
        self.assertEqual(out.tolist(), [True, False])

    def test_the_command_and_python_read_each_others_files(self):
        names, others = macs(500), macs(1500)[500:]
        with tempfile.TemporaryDirectory() as directory:
            listed, theirs, ours = (Path(directory) / name for name in ("list", "theirs", "ours"))
            listed.write_text("\n".join(texts(names)) + "\n")
            both = texts(names) + texts(others)
            for layout in fibula.LAYOUTS:
                for more in ([], ["--counters", "4"]):
                    with self.subTest(f"{layout} {more}"):
                        run("filter", "build", listed, "--out", theirs, "--layout", layout, *more)
                        read = fibula.Filter.load(theirs)
                        said = run("filter", "query", theirs, input="\n".join(both)).splitlines()
                        expected = [f"{name},{'yes' if yes else 'no'}" for name, yes in zip(both, read.contains(both))]
                        self.assertEqual(said, expected)
                        read.save(ours)
                        self.assertEqual(ours.read_bytes(), theirs.read_bytes())
            fibula.Filter.build(names, fp=0.001).save(ours)
            said = run("filter", "query", ours, input="\n".join(texts(names))).splitlines()
            self.assertEqual(said, [f"{name},yes" for name in texts(names)])

    def test_wrong_filters_are_said(self):
        names = macs(3)
        cases = [
            ("no layout `x`", lambda: fibula.Filter.build(names, layout="x")),
            ("bits and positions belong together", lambda: fibula.Filter.build(names, bits=64)),
            ("give capacity, or bits", lambda: fibula.Filter()),
            ("counters of 5 bits", lambda: fibula.Filter.build(names, counters=5)),
            ("1.5", lambda: fibula.Filter.build(names, fp=1.5)),
            ("at most 4294967296", lambda: fibula.Filter(capacity=1 << 36)),
            ("more than 8 bytes", lambda: fibula.Filter.build(["fd00::1"], kind="ipv6", layout="address-hashing")),
            ("not a fibula image", lambda: fibula.Filter.from_bytes(b"something")),
            ("dtype 'S6'", lambda: fibula.Filter.build(np.zeros(3, "S5"))),
        ]
        for pattern, call in cases:
            with self.subTest(pattern), self.assertRaisesRegex(ValueError, pattern):
                call()


if __name__ == "__main__":
    unittest.main()
