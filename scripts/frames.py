#!/usr/bin/env python3
"""Numbered frames at a steady rate, and how many of them arrive: scripts/frames.py send DEVICE TO_MAC RATE SECONDS, and
scripts/frames.py receive DEVICE, which ends when nothing came for two seconds and prints a JSON object; "missed_here" is what came
and was not read in time. Needs no more of Python than its smallest package has."""
import socket
import struct
import sys
import time

# For experiments on a local network (IEEE 802): no stack answers.
ETHERTYPE = 0x88B5
HEADER = struct.Struct("!6s6sHQ")
LENGTH = 60
SILENCE_S = 2
SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_STATISTICS = 263, 6


def opened(device, protocol):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    port.bind((device, protocol))
    return port


def send(device, to, rate, seconds):
    port = opened(device, 0)
    own = port.getsockname()[4]
    target = bytes.fromhex(to.replace(":", ""))
    total = int(rate * seconds)
    began, sent = time.monotonic(), 0
    while sent < total:
        due = min(total, int((time.monotonic() - began) * rate) + 1)
        for number in range(sent, due):
            port.send(HEADER.pack(target, own, ETHERTYPE, number).ljust(LENGTH, b"\0"))
        sent = due
        time.sleep(0.0005)
    print(f'{{"sent": {sent}, "seconds": {time.monotonic() - began:.2f}}}')


def receive(device):
    port = opened(device, ETHERTYPE)
    # Beyond what is allowed to others: what has waited somewhere comes all at once.
    port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    port.settimeout(SILENCE_S)
    print("ready", flush=True)
    seen, twice, before, gap = set(), 0, None, 0.0
    while True:
        try:
            frame = port.recv(2048)
        except socket.timeout:
            if before is None:
                continue
            break
        now = time.monotonic()
        number = HEADER.unpack_from(frame)[3]
        twice += number in seen
        seen.add(number)
        if before is not None:
            gap = max(gap, now - before)
        before = now
    missed = struct.unpack("II", port.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
    print(
        f'{{"received": {len(seen)}, "twice": {twice}, "missed_here": {missed}, "longest_gap_ms": {gap * 1000:.1f}}}'
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"] and len(sys.argv) == 6:
        send(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
    elif sys.argv[1:2] == ["receive"] and len(sys.argv) == 3:
        receive(sys.argv[2])
    else:
        sys.exit(__doc__)
