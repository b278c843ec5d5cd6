"""Flow tables find the flows that are there, and no other, until they end."""

import unittest

import fibula
import numpy as np
from fibula import Inserted

N = 5000


def keys(words, n=N):
    return np.random.default_rng(words).integers(0, 1 << 63, (n, words), np.uint64)


class Flows(unittest.TestCase):
    def test_tables_of_all_widths_find_what_is_there(self):
        for words in (1, 2, 5):
            for value_words in (1, 2):
                with self.subTest(f"{words} {value_words}"):
                    table = fibula.FlowTable(8192, key_bytes=8 * words, value_words=value_words)
                    some = keys(words)
                    values = np.arange(N * value_words, dtype=np.uint64).reshape(N, value_words)
                    values = values[:, 0] if value_words == 1 else values
                    done = table.insert(some[:4000], values[:4000], 30)
                    self.assertTrue((done == Inserted.NEW).all())
                    out, found = table.lookup(some)
                    self.assertTrue(found[:4000].all() and not found[4000:].any())
                    np.testing.assert_array_equal(out[:4000], values[:4000])
                    self.assertTrue((out[4000:] == 0).all())
                    self.assertEqual(len(table), 4000)
                    removed = table.remove(some[3000:])
                    self.assertEqual((removed[:1000].all(), removed[1000:].any()), (True, False))
                    got, of = table.items()
                    order = {key.tobytes(): at for at, key in enumerate(some[:3000])}
                    at = [order[key.tobytes()] for key in got]
                    self.assertEqual(sorted(at), list(range(3000)))
                    np.testing.assert_array_equal(of, values[at])
                    table.clear()
                    self.assertEqual(len(table), 0)

    def test_flows_end_with_their_lifetime(self):
        table, some = fibula.FlowTable(1024, now=100), keys(2, 300)
        table.insert(some[:200], np.arange(200, dtype=np.uint64), 10)
        table.insert(some[200:], np.arange(200, 300, dtype=np.uint64), 20)
        table.advance(110)
        self.assertEqual(table.now, 110)
        self.assertEqual(table.lookup(some)[1].nonzero()[0].tolist(), list(range(200, 300)))
        ended, values = table.scan()
        self.assertEqual(sorted(values.tolist()), list(range(200)))
        self.assertEqual({key.tobytes() for key in ended}, {key.tobytes() for key in some[:200]})
        self.assertEqual(len(table.scan()[0]), 0)

    def test_what_becomes_of_an_insert_is_told(self):
        table, some = fibula.FlowTable(64, max_capacity=256), keys(2, 200)
        numbers = np.arange(200, dtype=np.uint64)
        self.assertEqual(table.insert(some[:1], numbers[:1], 5).tolist(), [Inserted.NEW])
        self.assertEqual(table.insert(some[:1], numbers[1:2], 5).tolist(), [Inserted.EXISTS])
        self.assertEqual(table.lookup(some[:1])[0].tolist(), [0])
        self.assertEqual(table.insert(some[:1], numbers[1:2], 5, replace=True).tolist(), [Inserted.REPLACED])
        self.assertEqual(table.lookup(some[:1])[0].tolist(), [1])
        done = table.insert(some, numbers, 5, replace=True)
        self.assertIn(Inserted.FULL, done.tolist())
        table.grow()
        table.grow()
        self.assertEqual(table.capacity, 256)
        self.assertNotIn(Inserted.FULL, table.insert(some, numbers, 5, replace=True).tolist())
        out, found = table.lookup(some)
        self.assertTrue(found.all())
        np.testing.assert_array_equal(out, numbers)
        with self.assertRaisesRegex(ValueError, "512 slots"):
            table.grow()

    def test_all_forms_of_keys_are_the_same(self):
        table, some = fibula.FlowTable(1024), keys(2, 100)
        table.insert(some, np.arange(100, dtype=np.uint64), 5)
        rows = some.view(np.uint8).reshape(100, 16)
        out, found = np.zeros(100, np.uint64), np.zeros(100, np.bool_)
        for form in (rows, rows.view("V16").reshape(100), [row.tobytes() for row in rows], np.asfortranarray(some)):
            got, there = table.lookup(form, out=out, found=found)
            self.assertIs(got, out)
            self.assertIs(there, found)
            self.assertTrue(found.all())
            np.testing.assert_array_equal(out, np.arange(100))

    def test_wrong_flows_are_said(self):
        table, some = fibula.FlowTable(64), keys(2, 3)
        numbers = np.arange(3, dtype=np.uint64)
        cases = [
            (ValueError, "keys have 8, 16 or 40 bytes", lambda: fibula.FlowTable(64, key_bytes=12)),
            (ValueError, r"shape \(3, 1\).*shape \(n, 2\)", lambda: table.lookup(some[:, :1])),
            (ValueError, r"dtype 'S16'", lambda: table.lookup(np.zeros(3, "S15"))),
            (TypeError, "dtype '<f8'", lambda: table.lookup(np.zeros((3, 2)))),
            (TypeError, "big-endian", lambda: table.lookup(np.zeros((3, 2), ">u8"))),
            (TypeError, "key 0 is a int", lambda: table.lookup([1])),
            (ValueError, "key 1 has 3 bytes", lambda: table.lookup([b"x" * 16, b"abc"])),
            (TypeError, "dtype '<i8'.*uint64", lambda: table.insert(some, np.arange(3), 5)),
            (ValueError, "1 for each of 3 keys", lambda: table.insert(some, numbers[:2], 5)),
            (ValueError, "lifetime of 0 units", lambda: table.insert(some, numbers, 0)),
            (ValueError, "lifetime is 70000", lambda: table.insert(some, numbers, 70000)),
            (TypeError, "found is", lambda: table.lookup(some, found=np.zeros(3, np.uint8))),
        ]
        for error, pattern, call in cases:
            with self.subTest(pattern), self.assertRaisesRegex(error, pattern):
                call()
        self.assertEqual(len(table), 0)


if __name__ == "__main__":
    unittest.main()
