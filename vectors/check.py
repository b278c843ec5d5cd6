#!/usr/bin/env python3
"""Recomputes the golden vectors from the recipe in README.md, without any of fibula's code."""

import csv
import pathlib
import sys

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def sip13(k0, k1, data):
    def rotate(x, b):
        return ((x << b) | (x >> (64 - b))) & MASK

    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def round_():
        v[0] = (v[0] + v[1]) & MASK; v[1] = rotate(v[1], 13) ^ v[0]; v[0] = rotate(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK; v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK; v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK; v[1] = rotate(v[1], 17) ^ v[2]; v[2] = rotate(v[2], 32)

    whole = len(data) // 8 * 8
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56
    for word in [*(int.from_bytes(data[i:i + 8], "little") for i in range(0, whole, 8)), last]:
        v[3] ^= word
        round_()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        round_()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def derive(key, purpose, index):
    k0, k1 = (int.from_bytes(key[i:i + 8], "little") for i in (0, 8))
    return sip13(k0, k1, key[16:] + bytes([purpose]) + index.to_bytes(8, "little"))


def mix64(x):
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ x >> 33) * factor & MASK
    return x ^ x >> 33


def words(name):
    return [int.from_bytes(name[i:i + 8], "little") for i in range(0, len(name), 8)]


def fold(a, b):
    return a ^ b ^ (a * b & MASK) ^ (a * b >> 64)


def muladd(key, name):
    if len(name) > 16:
        return wy(key, name)
    w = [derive(key, 1, i) for i in range(4)]
    a, c = w[0] | w[1] << 64, w[2] | w[3] << 64
    w0, w1 = (words(name) + [0, 0])[:2]
    high = ((a * w0 + c * w1) & ((1 << 128) - 1)) >> 64
    return mix64((high + derive(key, 1, 16 + len(name))) & MASK)


def wy(key, name):
    s = [derive(key, 2, i) for i in range(4)]
    state = s[0] ^ (len(name) * STEP & MASK)
    while len(name) > 16:
        w0, w1 = words(name[:16])
        state = fold(w0 ^ s[1], w1 ^ state)
        name = name[16:]
    w0, w1 = (words(name) + [0, 0])[:2]
    product = (w0 ^ s[2]) * (w1 ^ state)
    return mix64(fold((product & MASK) ^ w0 ^ s[3], (product >> 64) ^ w1 ^ state))


def siphash13(key, name):
    return sip13(derive(key, 3, 0), derive(key, 3, 1), name)


def crc32c(crc, data):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def crc(key, name):
    halves = []
    for h in (0, 4):
        value, offset = derive(key, 4, h) & 0xFFFFFFFF, derive(key, 4, h + 1)
        factor, step = derive(key, 4, h + 2) | 1, derive(key, 4, h + 3)
        for i, word in enumerate(words(name)):
            product = (word ^ offset) * ((factor + 2 * i * step) & MASK)
            value = crc32c(value, ((product & MASK) ^ (product >> 64)).to_bytes(8, "little"))
        halves.append(value)
    joined = halves[1] << 32 | halves[0]
    return mix64((joined * (derive(key, 4, 8) | 1) + len(name) * STEP) & MASK)


FAMILIES = {1: muladd, 2: wy, 3: siphash13, 4: crc}


def line_group(message):
    """The one group of an update of groups: buckets of each level, stash, bytes of the buckets."""
    assert message[0] == 1 and int.from_bytes(message[1:5], "little") == 1
    group = message[5:]
    n_stash, at = group[5], 28
    counts = [int.from_bytes(group[6 + 2 * i : 8 + 2 * i], "little") for i in range(3)]
    stash = {}
    for _ in range(n_stash):
        stash[int.from_bytes(group[at : at + 8], "little")] = int.from_bytes(group[at + 8 : at + 16], "little")
        at += 16
    return counts, stash, group[at:]


def line_lookup(group, digest):
    """One name of a line table with 8-bit values and three cells a name; docs/formats/line.md."""
    (n1, n2, n3), stash, buckets = group
    second = n1 + ((digest >> 8 & 0xFFFF) * n2 >> 16)
    levels = [
        (n1, (digest >> 8 & 0xFFFFFFFF) * n1 >> 32, digest & 0xFF),
        (n2, second, digest >> 24 & 0xFF),
        (n3, n1 + n2, digest >> 16 & 0xFF),
    ]
    for n, bucket, rank in levels:
        line = buckets[64 * bucket : 64 * bucket + 64]
        if n and rank - (rank >> 7) < line[1]:
            x = (digest ^ line[0] * 0x9E3779B1) * STEP & MASK
            x ^= x >> 32
            value = 0
            for part in range(3):
                start, end = 2 + 62 * part // 3, 2 + 62 * (part + 1) // 3
                value ^= line[start + ((x >> 16 * part & 0xFFFF) * (end - start) >> 16)]
            return value
    return stash.get(digest, 0)


class Reader:
    """Little-endian fields of a message, in order."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        assert self.at <= len(self.data), "the message ends too early"
        return self.data[self.at - n : self.at]

    def int(self, n):
        return int.from_bytes(self.take(n), "little")

    def words(self, n):
        return [self.int(8) for _ in range(n)]


def slot_prf(seed, slot, contents):
    """docs/formats/cuckoo.md: what a slot contributes to the digest."""
    if not any(contents):
        return 0
    x = seed + (slot + 1) * 0xD6E8FEB86659FD93 & MASK
    for word in contents:
        x = mix64(x ^ word) * STEP & MASK
    return x


def cuckoo_slots(table):
    n = table["slot_words"]
    return [table["words"][i : i + n] for i in range(0, len(table["words"]), n)]


def cuckoo_table(reader, name_bytes, value_bits, seed):
    """A (2,4)-Cuckoo table as an image."""
    name_words = -(-name_bytes // 8)
    last_bits = 8 * name_bytes - 64 * (name_words - 1)
    table = {"version": reader.int(8), "digest": reader.int(8), "tweak": reader.int(8), "buckets": reader.int(4)}
    table["name_words"], table["value_bits"] = name_words, value_bits
    table["last_mask"] = (1 << last_bits) - 1
    table["slot_words"] = name_words + (last_bits + value_bits > 64)
    table["words"] = reader.words(table["buckets"] * 4 * table["slot_words"])
    digest = 0
    for slot, contents in enumerate(cuckoo_slots(table)):
        digest ^= slot_prf(seed, slot, contents)
    assert digest == table["digest"], "the digest of a cuckoo table"
    return table


def cuckoo_buckets(mixed, n_buckets):
    return [(mixed >> 32) * n_buckets >> 32, (mixed & 0xFFFFFFFF) * n_buckets >> 32]


def cuckoo_lookup(table, digest, name):
    """The value of a name, given as words; 0 if it is not there."""
    slots, wide = cuckoo_slots(table), table["name_words"]
    for bucket in cuckoo_buckets(mix64(digest ^ table["tweak"]), table["buckets"]):
        for contents in slots[4 * bucket : 4 * bucket + 4]:
            held = contents[: wide - 1] + [contents[wide - 1] & table["last_mask"]]
            value = contents[-1] >> 64 - table["value_bits"]
            if held == name and value:
                return value
    return 0


def padded(name, n_words):
    return (words(name) + [0] * n_words)[:n_words]


def check_cuckoo(message, key, name_bytes):
    reader = Reader(message)
    assert reader.int(1) == 1
    table = cuckoo_table(reader, name_bytes, 8, derive(key, 16, 1))
    return lambda name: cuckoo_lookup(table, muladd(key, name), padded(name, table["name_words"]))


def check_cfw(message, key, value_bits, fingerprint_bits):
    reader, seed = Reader(message), derive(key, 16, 2)
    assert reader.int(1) == 2
    _version, digest, tweak, n_buckets = reader.int(8), reader.int(8), reader.int(8), reader.int(4)
    slot_bits = 16 if value_bits + fingerprint_bits <= 16 else 32
    first = reader.words(n_buckets * slot_bits // 16)
    packed = b"".join(word.to_bytes(8, "little") for word in first)
    slots = [int.from_bytes(packed[i : i + slot_bits // 8], "little") for i in range(0, len(packed), slot_bits // 8)]
    second = cuckoo_table(reader, 8, value_bits, mix64(seed ^ 0x9FB21C651E98DF25))
    for slot, contents in enumerate(slots):
        digest ^= slot_prf(seed, slot, [contents])
    assert digest ^ second["digest"] == 0, "the digest of both levels"

    def lookup(name):
        name = int.from_bytes(name, "little")
        mixed = mix64(name ^ tweak)
        fingerprint = ((mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 & MASK) >> 64 - fingerprint_bits
        for bucket in cuckoo_buckets(mixed, n_buckets):
            for contents in slots[4 * bucket : 4 * bucket + 4]:
                value = contents & (1 << value_bits) - 1
                if contents >> value_bits == fingerprint and value:
                    return value
        return cuckoo_lookup(second, name, [name])

    return lookup


def check_bloom_forwarder(message, key, value_bits, counters):
    reader, seed = Reader(message), derive(key, 16, 5)
    assert reader.int(1) == 2
    _version, digest = reader.int(8), reader.int(8)
    ports = [(reader.int(4), reader.int(1)) for _ in range(reader.int(4))]
    n_cells = sum(-(-bits // 512) * 512 for bits, _ in ports)
    bits = reader.words(-(-n_cells // 64))
    counts = reader.words(-(-n_cells // 16)) if counters else None
    second = cuckoo_table(reader, 8, value_bits + 1, mix64(seed ^ 0x9FB21C651E98DF25))
    for cell in range(n_cells):
        one = bits[cell // 64] >> cell % 64 & 1
        count = counts[cell // 16] >> 4 * (cell % 16) & 15 if counters else one
        assert (count > 0) == one
        if count:
            digest ^= mix64(mix64(seed + (cell + 1) * 0xD6E8FEB86659FD93 & MASK) + count & MASK)
    assert digest ^ second["digest"] == 0, "the digest of filters and exact table"

    def lookup(name):
        name = int.from_bytes(name, "little")
        exact = cuckoo_lookup(second, name, [name])
        if exact:
            return exact - 1
        mixes = [mix64((name ^ seed) + STEP * step & MASK) for step in range(1, 17)]
        numbers = [half for mixed in mixes for half in (mixed >> 32, mixed & 0xFFFFFFFF)]
        base = 0
        for port, (m, k) in enumerate(ports, 1):
            cells = [base + (number * m >> 32) for number in numbers[:k]]
            if all(bits[cell // 64] >> cell % 64 & 1 for cell in cells):
                return port
            base += -(-m // 512) * 512
        return 0

    return lookup


def check_tss(message, key, value_bits, priority_bits):
    reader, seed = Reader(message), derive(key, 16, 2)
    assert reader.int(1) == 1
    _version, digest = reader.int(8), reader.int(8)
    tuples = [(reader.int(2), reader.int(4)) for _ in range(reader.int(4))]
    assert reader.int(1) == 1
    table = cuckoo_table(reader, 16, 1 + priority_bits + value_bits, derive(key, 16, 1))
    for code, highest in tuples:
        digest ^= mix64(mix64(seed ^ code) + highest & MASK)
    assert digest ^ table["digest"] == 0, "the digest of tuples and rules"

    def prefix(n):
        return ((1 << 32) - (1 << 32 - n)).to_bytes(4, "big")

    def lookup(name):
        best = (0, 0)
        for code, _highest in tuples:
            source, destination = code >> 9, code >> 3 & 63
            mask = prefix(source) + prefix(destination) + bytes([255 * (code >> 2 & 1)])
            mask += bytes([255 * (code >> 1 & 1)]) * 2 + bytes([255 * (code & 1)]) * 2
            masked = bytes(a & b for a, b in zip(name, mask)) + code.to_bytes(2, "little") + bytes(1)
            stored = cuckoo_lookup(table, muladd(key, masked), words(masked))
            n_bits = source + destination + 8 * (code >> 2 & 1) + 16 * ((code >> 1 & 1) + (code & 1))
            if stored:
                best = max(best, (stored >> value_bits, n_bits << 16 | code, stored & (1 << value_bits) - 1))
        return best[2] if len(best) == 3 else 0

    return lookup


def check_memory(image):
    """A table in memory: docs/formats/table-in-memory.md."""
    def u(at, n):
        return int.from_bytes(image[at:at + n], "little")

    assert image[:8] == b"FIBULAM1" and u(128, 8) % 2 == 0
    structure, value_bits, fingerprint_bits, cells = image[16:20]
    directory, depth = 64 * u(64, 4), u(68, 4)
    annex, annex_bytes = 64 * u(72, 4), u(76, 4)
    assert [image[annex + 24 * v + 2] for v in range(annex_bytes // 24)] == [0, 7, 8, 9]
    cell_bits = value_bits + fingerprint_bits
    per_word, mask = 64 // cell_bits, (1 << cell_bits) - 1

    def lookup(name):
        digest = int.from_bytes(name, "little")
        entry = u(directory + 8 * (digest >> 64 - depth), 8)
        part = 64 * (entry >> 32)
        assert not entry >> 31 & 1, "a stash, which these tables do not have"
        if structure == 2:
            side = (entry & 0xFFFF) * per_word
            x = (digest ^ (entry >> 16 & 0x7FFF) * 0x9E3779B1) * STEP & MASK
            x ^= x >> 32

            def cell(at):
                return u(part + 8 * (at // per_word), 8) >> at % per_word * cell_bits & mask

            a, b = cell((x >> 32) * side >> 32), cell(side + ((x & 0xFFFFFFFF) * side >> 32))
            value = (a ^ b) & (1 << value_bits) - 1
            if fingerprint_bits:
                wanted = ((digest ^ digest >> 32) * 0x243F6A8885A308D3 & MASK) >> 65 - cell_bits
                differ = (a ^ b ^ wanted) & mask >> 1
                return value if (a & b) >> cell_bits - 1 and differ >> value_bits == 0 else 0
            return value
        n = [entry & 0xFFFF, entry >> 16 & 0x3FFF, entry >> 30 & 1]
        n_words = 8 if value_bits <= 8 else 16
        first = -(-16 // value_bits)
        n_cells = n_words * per_word - first
        middle = digest >> 8
        buckets = [(middle & 0xFFFFFFFF) * n[0] >> 32, n[0] + ((middle & 0xFFFF) * n[1] >> 16), n[0] + n[1]]
        for bucket, rank, is_there in zip(buckets, [digest & 0xFF, digest >> 24 & 0xFF, digest >> 16 & 0xFF], n):
            at = part + 8 * n_words * bucket
            if is_there and rank - (rank >> 7) < image[at + 1]:
                x = (digest ^ image[at] * 0x9E3779B1) * STEP & MASK
                x ^= x >> 32
                value = 0
                for j in range(cells):
                    start, end = (first + n_cells * k // cells for k in (j, j + 1))
                    slot = start + ((x >> 16 * j & 0xFFFF) * (end - start) >> 16)
                    value ^= u(at + 8 * (slot // per_word), 8) >> slot % per_word * value_bits
                return value & (1 << value_bits) - 1
        return 0

    return lookup


TABLES = {
    **{f"memory-{what}": lambda image, key: check_memory(image)
       for what in ("concise-8", "concise-16", "ofw", "line", "line-small")},
    "cuckoo-6": lambda message, key: check_cuckoo(message, key, 6),
    "cuckoo-16": lambda message, key: check_cuckoo(message, key, 16),
    "cfw-16": lambda message, key: check_cfw(message, key, 6, 10),
    "cfw-32": lambda message, key: check_cfw(message, key, 12, 8),
    "bfw": lambda message, key: check_bloom_forwarder(message, key, 3, True),
    "buffalo": lambda message, key: check_bloom_forwarder(message, key, 3, False),
    "summary-cache": lambda message, key: check_bloom_forwarder(message, key, 3, True),
    "tss": lambda message, key: check_tss(message, key, 8, 8),
}


def main():
    here = pathlib.Path(__file__).parent
    wrong = checked = 0
    for row in csv.DictReader((here / "key.csv").open()):
        checked += 1
        wrong += derive(bytes.fromhex(row["key"]), int(row["purpose"]), int(row["index"])) != int(row["word"], 16)
    for row in csv.DictReader((here / "hash.csv").open()):
        checked += 1
        digest = FAMILIES[int(row["family"])](bytes.fromhex(row["key"]), bytes.fromhex(row["name"]))
        wrong += digest != int(row["digest"], 16)
    group = line_group(bytes.fromhex((here / "line.hex").read_text()))
    for row in csv.DictReader((here / "line.csv").open()):
        checked += 1
        wrong += line_lookup(group, int(row["digest"], 16)) != int(row["value"], 16)
    for what, table_of in TABLES.items():
        rows = list(csv.DictReader((here / f"{what}.csv").open()))
        lookup = table_of(bytes.fromhex((here / f"{what}.hex").read_text()), bytes.fromhex(rows[0]["key"]))
        for row in rows:
            checked += 1
            wrong += lookup(bytes.fromhex(row["name"])) != int(row["value"], 16)
    print(f"{checked} vectors checked, {wrong} wrong")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
