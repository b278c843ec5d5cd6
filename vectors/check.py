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
    print(f"{checked} vectors checked, {wrong} wrong")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
