"""FIBs give every name its action, from any form of names, and from files of either side."""

import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import fibula
import numpy as np
from support import macs, run, texts

N = 3000
PORTS = (np.arange(N) % 48).astype(np.uint16)


def fib(**how):
    return fibula.Fib.build(macs(N), PORTS, **how)


class Lookups(unittest.TestCase):
    def test_every_design_gives_every_name_its_port(self):
        names = macs(N)
        self.assertGreater(len(fibula.DESIGNS), 6)
        for design in fibula.DESIGNS:
            with self.subTest(design):
                built = fib(design=design, threads=1)
                read = fibula.Fib.from_bytes(built.to_bytes())
                for one in (built, read):
                    np.testing.assert_array_equal(one.ports[one.lookup_batch(names)], PORTS)
                self.assertEqual((read.design, read.kind, len(read), len(read.actions)), (design, "mac", N, 49))

    def test_batches_of_every_length_are_whole(self):
        built, names = fib(), macs(N)
        for n in [0, 1, 31, 32, 33, 63, 64, 65, 1000]:
            np.testing.assert_array_equal(built.ports[built.lookup_batch(names[:n])], PORTS[:n])

    def test_all_forms_of_names_get_the_same_answers(self):
        built, names = fib(), macs(100)
        expected = built.lookup_batch(names)
        rows = names.view(np.uint8).reshape(-1, 6)
        apart = np.zeros((100, 9), np.uint8)
        apart[:, :6] = rows
        forms = {
            "rows": rows,
            "void": names.view("V6"),
            "not contiguous": apart[:, :6],
            "columns first": np.asfortranarray(rows),
            "bytes": [row.tobytes() for row in rows],
            "texts": texts(names),
            "generator": (text for text in texts(names)),
        }
        for form, given in forms.items():
            with self.subTest(form):
                np.testing.assert_array_equal(built.lookup_batch(given), expected)
        np.testing.assert_array_equal(built.lookup_batch(names[::-2]), expected[::-2])
        self.assertEqual(built.lookup(texts(names)[7]), "port:7")
        self.assertEqual(built.format_names(names[:2]), texts(names[:2]))

    def test_every_kind_of_name_is_looked_up(self):
        numbers = np.arange(500, dtype=np.uint64) + 10**15
        text = [f"/video/{at}" * (1 + at % 20) for at in range(500)]
        v4 = [f"10.0.{at // 256}.{at % 256}" for at in range(500)]
        flows = [f"10.0.0.1:{at}->10.0.0.2:443/tcp" if at % 2 else f"[fd00::1]:{at}->[fd00::2]:443/udp" for at in range(500)]
        cases = {
            ("fixed:8", "numbers"): numbers,
            ("fixed:8", "bytes"): [int(number).to_bytes(8, "little") for number in numbers],
            ("fixed:64", "array"): np.array([b"%064d" % at for at in range(500)]),
            ("text", "list"): text,
            ("text", "bytes"): [name.encode() for name in text],
            ("text", "array"): np.array([name.encode() for name in text]),
            ("ipv4", "texts"): v4,
            ("ipv6", "texts"): [f"fd00::{at:x}" for at in range(500)],
            ("5-tuple", "texts"): flows,
            ("teid", "texts"): [str(at) for at in range(500)],
        }
        ports = np.arange(500) % 7
        for (kind, form), names in cases.items():
            for design in ("concise", "cuckoo", "ofw", "cfw"):
                with self.subTest(f"{kind} {form} {design}"):
                    built = fibula.Fib.build(names, ports, kind=kind, design=design, threads=1)
                    np.testing.assert_array_equal(built.ports[built.lookup_batch(names)], ports)
        same = fibula.Fib.build(cases["fixed:8", "numbers"], ports, kind="fixed:8")
        np.testing.assert_array_equal(same.ports[same.lookup_batch(cases["fixed:8", "bytes"])], ports)

    def test_answers_go_where_they_are_wanted(self):
        built, names = fib(), macs(N)
        out = np.full(N, 9999, np.uint16)
        self.assertIs(built.lookup_batch(names, out=out), out)
        np.testing.assert_array_equal(built.ports[out], PORTS)

    def test_digests_are_looked_up_unless_a_design_holds_names(self):
        names = macs(N)
        built = fib(design="line")
        digests = built.digests(names)
        np.testing.assert_array_equal(built.lookup_digests(digests), built.lookup_batch(names))
        np.testing.assert_array_equal(built.lookup_digests(digests[::2]), built.lookup_batch(names[::2]))
        with self.assertRaisesRegex(ValueError, "cuckoo holds whole names.*give the names"):
            exact = fib(design="cuckoo")
            exact.lookup_digests(exact.digests(names))

    def test_other_names_are_dropped_as_often_as_promised(self):
        others = macs(20000 + N)[N:]
        for fp in (0.01, 0):
            built = fib(fp=fp, design="concise" if fp else "cuckoo")
            share = np.count_nonzero(built.lookup_batch(others)) / len(others)
            self.assertLessEqual(built.false_positive_rate, fp)
            self.assertLessEqual(share, 2 * fp)
        self.assertEqual(fib().false_positive_rate, 1)

    def test_actions_are_texts_one_text_or_ports(self):
        names = macs(4)
        given = ["port:3", "drop", "punt", "port:3"]
        built = fibula.Fib.build(names, given)
        self.assertEqual([built.actions[at] for at in built.lookup_batch(names)], given)
        self.assertEqual(built.ports[built.lookup_batch(names)].tolist(), [3, -1, -1, 3])
        self.assertEqual(fibula.Fib.build(names, "punt").lookup(b"\x02\0\0\0\0\1"), "punt")
        self.assertEqual(fibula.Fib.build(names, np.array(given)).lookup(texts(names)[2]), "punt")
        empty = fibula.Fib.build([], [])
        self.assertEqual((len(empty), empty.lookup_batch(names).shape), (0, (4,)))


class Threads(unittest.TestCase):
    def test_lookups_let_other_threads_run(self):
        built, names = fib(), np.tile(macs(N), 1000)
        ticks, seen = [0], []

        def look_up():
            before = ticks[0]
            built.lookup_batch(names)
            seen.append(ticks[0] - before)

        thread = threading.Thread(target=look_up)
        thread.start()
        while thread.is_alive():
            ticks[0] += 1
        thread.join()
        # With the interpreter's lock held, this thread would not have counted at all meanwhile.
        self.assertGreater(seen[0], 1000)

    def test_many_threads_look_up_in_one_fib(self):
        built, names, wrong = fib(design="line"), macs(N), []

        def look_up(start):
            for _ in range(50):
                some = np.roll(names, start)
                if not np.array_equal(built.ports[built.lookup_batch(some)], np.roll(PORTS, start)):
                    wrong.append(start)

        threads = [threading.Thread(target=look_up, args=(start,)) for start in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])


class Files(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.dir = Path(directory.name)

    def test_the_command_and_python_read_each_others_files(self):
        names, actions = macs(500), [f"port:{at % 9}" if at % 50 else "punt" for at in range(500)]
        others = macs(800)[500:]
        csv = self.dir / "list.csv"
        csv.write_text("".join(f"{name},{action}\n" for name, action in zip(texts(names), actions)))
        for design in ("concise", "line", "ofw", "cuckoo", "cfw", "concise+checksum"):
            with self.subTest(design):
                theirs, ours = self.dir / "theirs.fib", self.dir / "ours.fib"
                run("fib", "build", csv, "--out", theirs, "--design", design)
                read = fibula.Fib.load(theirs)
                self.assertEqual([read.actions[at] for at in read.lookup_batch(names)], actions)
                read.save(ours)
                self.assertEqual(ours.read_bytes(), theirs.read_bytes())
                self.assertEqual(ours.stat().st_mode & 0o777, 0o600)
                fibula.Fib.build(names, actions, design=design).save(ours)
                both = texts(names) + texts(others)
                said = run("fib", "lookup", ours, input="\n".join(both))
                read = fibula.Fib.load(ours)
                expected = [f"{name},{read.actions[at]}" for name, at in zip(both, read.lookup_batch(both))]
                self.assertEqual(said.splitlines(), expected)

    def test_files_that_are_none_are_refused_by_name(self):
        path = self.dir / "x.fib"
        path.write_bytes(b"something")
        with self.assertRaisesRegex(ValueError, "x.fib: this is not a FIB file"):
            fibula.Fib.load(path)
        data = bytearray(fib().to_bytes())
        data[100] ^= 1
        with self.assertRaisesRegex(ValueError, "damaged"):
            fibula.Fib.from_bytes(bytes(data))
        with self.assertRaises(FileNotFoundError):
            fibula.Fib.load(self.dir / "none.fib")
        with self.assertRaises(FileNotFoundError):
            fib().save(self.dir / "none" / "x.fib")
        self.assertEqual([path.name for path in self.dir.iterdir()], ["x.fib"])

    def test_what_is_no_plain_file_is_written_to_and_links_and_permissions_stay(self):
        table = fib()
        data, path, link = table.to_bytes(), self.dir / "x.fib", self.dir / "link"
        # A link that leads nowhere yet, then one that leads to a file that others may read.
        link.symlink_to("x.fib")
        for mode in (0o600, 0o640):
            table.save(link)
            self.assertTrue(link.is_symlink() and not path.is_symlink())
            self.assertEqual((path.read_bytes(), path.stat().st_mode & 0o777), (data, mode))
            path.chmod(0o640)
        if os.geteuid() == 0:
            os.chown(path, 1234, 2345)
            table.save(path)
            self.assertEqual((path.stat().st_uid, path.stat().st_gid), (1234, 2345))
        # Instead of /dev/null, which root must not lose.
        null = self.dir / "null"
        null.symlink_to("/dev/null")
        table.save(null)
        self.assertTrue(null.is_symlink() and null.is_char_device())
        # A pipe has a reader, who gets all of it.
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        read = []
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
        reader.start()
        table.save(pipe)
        reader.join()
        self.assertEqual(read, [data])
        self.assertTrue(pipe.is_fifo())
        self.assertEqual({each.name for each in self.dir.iterdir()}, {"x.fib", "link", "null", "pipe"})

    def test_the_own_output_goes_on_where_it_is(self):
        path, program = self.dir / "x.fib", self.dir / "output"
        fib().save(path)
        code = f"import fibula; print('before'); fibula.Fib.load({str(path)!r}).save('/dev/stdout'); print('after')"
        for of_file in (False, True):
            with self.subTest(of_file=of_file):
                if of_file:
                    with open(program, "wb") as out:
                        subprocess.run([sys.executable, "-c", code], check=True, stdout=out)
                    said = program.read_bytes()
                else:
                    said = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE).stdout
                self.assertEqual(said, b"before\n" + path.read_bytes() + b"after\n")


class Refusals(unittest.TestCase):
    def refused(self, error, pattern, call):
        with self.assertRaisesRegex(error, pattern):
            call()

    def test_wrong_names_are_said_with_what_is_wanted(self):
        built, names = fib(), macs(10)
        rows = names.view(np.uint8).reshape(-1, 6)
        wide = fibula.Fib.build(np.arange(9, dtype=np.uint64), "drop", kind="fixed:8")
        cases = [
            (ValueError, r"dtype '\|S5'.*dtype 'S6'", np.zeros(3, "S5")),
            (ValueError, r"shape \(3, 5\).*shape \(n, 6\)", np.zeros((3, 5), np.uint8)),
            (ValueError, r"shape \(60,\).*shape \(n, 6\)", rows.reshape(-1)),
            (ValueError, r"one dimension", names.reshape(2, 5)),
            (TypeError, r"dtype '<u8'.*dtype 'S6'", np.zeros(3, np.uint64)),
            (TypeError, r"dtype '<f8'", np.zeros(3)),
            (TypeError, r"dtype '\|O'", np.array([object()])),
            (TypeError, r"tolist\(\)", np.array(["02:00:00:00:00:01"])),
            (TypeError, r"give \['02:00", "02:00:00:00:00:01"),
            (TypeError, r"name 1 is a bytes", ["02:00:00:00:00:01", b"123456"]),
            (TypeError, r"name 0 is a int", [1, 2]),
            (ValueError, r"name 1: .*02:00:00:00:00", ["02:00:00:00:00:01", "02:00:00:00:00"]),
            (ValueError, r"name 1: .*5", [b"123456", b"12345"]),
        ]
        for error, pattern, given in cases:
            with self.subTest(pattern):
                self.refused(error, pattern, lambda: built.lookup_batch(given))
        self.refused(TypeError, r"big-endian.*astype\('<u8'\)", lambda: wide.lookup_batch(np.zeros(3, ">u8")))
        self.refused(TypeError, r"a int is not a name", lambda: built.lookup(7))

    def test_wrong_places_for_answers_are_said(self):
        built, names = fib(), macs(10)
        frozen = np.empty(10, np.uint16)
        frozen.flags.writeable = False
        odd = np.empty(21, np.uint8)[1:].view(np.uint16)
        cases = [
            (TypeError, "list: give a numpy array", [0] * 10),
            (TypeError, "dtype '<u4'.*dtype uint16", np.empty(10, np.uint32)),
            (TypeError, "dtype '>u2'", np.empty(10, ">u2")),
            (ValueError, r"shape \(9,\).*shape \(10,\)", np.empty(9, np.uint16)),
            (ValueError, r"shape \(10, 1\)", np.empty((10, 1), np.uint16)),
            (ValueError, r"strides \(4,\)", np.empty(20, np.uint16)[::2]),
            (ValueError, "read-only", frozen),
            (ValueError, "odd addresses", odd),
        ]
        for error, pattern, out in cases:
            with self.subTest(pattern):
                self.refused(error, pattern, lambda: built.lookup_batch(names, out=out))
        both = np.zeros(60, np.uint8)
        self.refused(
            ValueError, "it is the names", lambda: built.lookup_batch(both.view("S6"), out=both[:20].view(np.uint16))
        )

    def test_wrong_builds_are_said(self):
        names = macs(3)
        build = fibula.Fib.build
        cases = [
            (ValueError, "no FIB design `round`", lambda: build(names, "drop", design="round")),
            (ValueError, "colour", lambda: build(names, "drop", kind="colour")),
            (ValueError, 'hash family "x"', lambda: build(names, "drop", hash="x")),
            (ValueError, "`fly` is not an action", lambda: build(names, "fly")),
            (ValueError, "2 actions for 3 names", lambda: build(names, ["drop", "drop"])),
            (ValueError, "ports are 0 to 65535, not 0 to 65536", lambda: build(names, np.array([0, 1, 65536]))),
            (ValueError, "not -1 to 1", lambda: build(names, np.array([0, 1, -1]))),
            (TypeError, "dtype '<f8'", lambda: build(names, np.zeros(3))),
            (TypeError, "action 0 is a int", lambda: build(names, [1, 2, 3])),
            (ValueError, "in the list twice", lambda: build(["02:00:00:00:00:01"] * 2, "drop")),
            (ValueError, "300", lambda: build(names, "drop", value_bits=300)),
            (ValueError, "values of 17 bits", lambda: build(names, "drop", value_bits=17)),
            (ValueError, "threads is -1", lambda: build(names, "drop", threads=-1)),
            (ValueError, "nothing called `x`", lambda: build(names, "drop", aliens="x")),
            (TypeError, "Fib.build, Fib.load", lambda: fibula.Fib(7)),
        ]
        for error, pattern, call in cases:
            with self.subTest(pattern):
                self.refused(error, pattern, call)


if __name__ == "__main__":
    unittest.main()
