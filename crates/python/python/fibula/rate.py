"""What numpy batches reach of the rate of Rust: same table, same names, one process, one thread, in turns.

    python -m fibula.rate [--what fib,filter,flow,lpm] [--names 1M,4M] [--designs concise,line] [--passes 25] [--at-least 0.8]

`rust` is the reader of the table over packed names, two bursts in flight, as a switch looks names up; `library` is
`Fib::lookup_batch` of the Rust library over its own `Name`s. `ratio` is that of numpy to the faster one: of each turn, in
which every one of them has a pass, and of these the median. Of filters, flow tables and tables of prefixes `rust` is a
loop over keys of Rust's own types.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import statistics
import sys
import time
from typing import Callable, Optional

import numpy as np
import numpy.typing as npt

from . import Fib, Filter, FlowTable, PrefixTable, __version__, _native
from .arrays import pack

#: Ports that names have.
PORTS = 48


def size(text: str) -> int:
    """A number with K or M, for powers of two."""
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper())
    try:
        return int(text[:-1]) * factor if factor else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of names: write 1000, 64K or 4M") from None


def macs(n: int) -> npt.NDArray[np.bytes_]:
    """As many MAC addresses of one vendor, as dtype 'S6'."""
    numbers = (np.arange(n, dtype=np.uint64) + np.uint64(0x0200_0000_0000)).astype(">u8")
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(n, 8)[:, 2:]).view("S6").reshape(n)


def measured(design: str, n: int, passes: int) -> dict[str, float]:
    """Rates in millions a second, and the ratio."""
    order = np.random.default_rng(1).permutation(n)
    names = macs(n)
    fib = Fib.build(names, (np.arange(n) % PORTS).astype(np.uint16), design=design)
    names = names[order]
    expected = (order % PORTS).astype(np.int32)
    out = np.empty(n, np.uint16)
    packed = pack(names, "mac")[0]
    rust = _native.RustRate(fib._native, packed)
    ways = {
        "library": rust.library,
        "numpy": timed(lambda: fib.lookup_batch(names, out=out)),
        "rust": lambda: rust.packed(packed),
        "numpy_new": timed(lambda: fib.lookup_batch(names)),
    }
    rates = in_turns(ways, n, passes)
    if not np.array_equal(fib.ports[out], expected):
        raise AssertionError(f"{design}: a name has another port than it was given")
    return rates


def of_filter(n: int, passes: int) -> dict[str, float]:
    """Half of the names are in."""
    names = macs(2 * n)[np.random.default_rng(1).permutation(2 * n)]
    held = Filter.build(names[:n], fp=0.01)
    names = np.ascontiguousarray(names[n // 2 : n // 2 + n])
    packed, out = pack(names, "mac")[0], np.empty(n, np.bool_)
    ways = {
        "numpy": timed(lambda: held.contains(names, out=out)),
        "rust": lambda: held._native.rust_pass(packed),
        "numpy_new": timed(lambda: held.contains(names)),
    }
    rates = in_turns(ways, n, passes)
    if not out[: n - n // 2].all():
        raise AssertionError("the filter lacks a name")
    return rates


def of_flows(n: int, passes: int) -> dict[str, float]:
    """Keys of 16 bytes, all there."""
    numbers = np.random.default_rng(1)
    keys = numbers.integers(0, 1 << 63, (n, 2), np.uint64)
    values = np.arange(n, dtype=np.uint64)
    table = FlowTable(2 * n)
    table.insert(keys, values, 60)
    order = numbers.permutation(n)
    keys, values = np.ascontiguousarray(keys[order]), values[order]
    packed, out, found = table._pack(keys)[0], np.empty(n, np.uint64), np.empty(n, np.bool_)
    ways = {
        "numpy": timed(lambda: table.lookup(keys, out=out, found=found)),
        "rust": lambda: table._native.rust_pass(packed),
        "numpy_new": timed(lambda: table.lookup(keys)),
    }
    rates = in_turns(ways, n, passes)
    if not (found.all() and np.array_equal(out, values)):
        raise AssertionError("the table lacks a flow")
    return rates


def of_prefixes(n: int, passes: int) -> dict[str, float]:
    """IPv4 addresses in 200,000 prefixes, most of them /24."""
    numbers = np.random.default_rng(1)
    lengths = numbers.choice([24, 24, 24, 22, 20, 16], 200_000)
    starts = numbers.integers(0, 1 << 32, len(lengths)) >> (32 - lengths) << (32 - lengths)
    octets = [".".join(str(start >> shift & 255) for shift in (24, 16, 8, 0)) for start in starts.tolist()]
    prefixes = list({f"{text}/{length}": None for text, length in zip(octets, lengths.tolist())})
    table = PrefixTable.build(prefixes, [f"hop{at % PORTS}" for at in range(len(prefixes))])
    addresses = numbers.integers(0, 1 << 32, n).astype(np.uint32)
    out = np.empty(n, np.uint32)
    ways = {
        "numpy": timed(lambda: table.lookup_batch(addresses, out=out)),
        "rust": lambda: table._native.rust_pass(addresses),
        "numpy_new": timed(lambda: table.lookup_batch(addresses)),
    }
    return in_turns(ways, n, passes)


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """The seconds that it takes."""

    def once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return once


def in_turns(ways: dict[str, Callable[[], float]], n: int, passes: int) -> dict[str, float]:
    """Rates in millions a second, and the ratio of numpy to the fastest of Rust."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    # Those that are compared follow one another: other programs may take the processor at any time.
    # The first turn warms caches and memory up.
    for turn in range(passes + 1):
        for way, run in list(ways.items())[:: 1 if turn % 2 else -1]:
            took = run()
            if turn:
                seconds[way].append(took)
    fastest = [min(turn) for turn in zip(*(seconds[way] for way in ("rust", "library") if way in ways))]
    rates = {way: n / statistics.median(times) / 1e6 for way, times in seconds.items()}
    return {**rates, "ratio": statistics.median(rust / numpy for rust, numpy in zip(fastest, seconds["numpy"]))}


def machine() -> str:
    """The processor and what runs."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"{model}, {os.cpu_count()} processors, Linux {platform.release()}; Python {platform.python_version()}, "
        f"numpy {np.__version__}, fibula {__version__}"
    )


def main(arguments: Optional[list[str]] = None) -> int:
    """Prints a line a design and size. 1 if a ratio is below `--at-least`."""
    parser = argparse.ArgumentParser(prog="python -m fibula.rate", description="numpy batches beside Rust")
    parser.add_argument("--what", default="fib,filter,flow,lpm", help="fib, filter, flow, lpm, separated by commas (all)")
    parser.add_argument("--names", default="1M,4M", help="sizes, separated by commas (1M,4M)")
    parser.add_argument("--designs", default="concise,line", help="designs, separated by commas (concise,line)")
    parser.add_argument("--passes", type=int, default=25, help="turns that count (25)")
    parser.add_argument("--at-least", type=float, default=None, help="the least ratio: below it the exit code is 1")
    options = parser.parse_args(arguments)
    try:
        sizes = [size(text) for text in options.names.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    others = {"filter": of_filter, "flow": of_flows, "lpm": of_prefixes}
    measures: list[tuple[str, Callable[[int, int], dict[str, float]]]] = []
    for what in options.what.split(","):
        if what == "fib":
            for design in options.designs.split(","):
                measures.append((design, functools.partial(measured, design)))
        elif what in others:
            measures.append((what, others[what]))
        else:
            parser.error(f"`{what}` is none of fib, filter, flow, lpm")
    print(machine())
    print("M lookups/s, one thread, medians; of MAC names, flows of 16 bytes, IPv4 addresses")
    print(f"{'table':<12}{'lookups':>10}{'rust':>9}{'library':>9}{'numpy out=':>12}{'numpy':>8}{'ratio':>7}")
    lowest = float("inf")
    for what, measure in measures:
        for n in sizes:
            rates = measure(n, options.passes)
            lowest = min(lowest, rates["ratio"])
            library = f"{rates['library']:.1f}" if "library" in rates else "-"
            print(
                f"{what:<12}{n:>10,}{rates['rust']:>9.1f}{library:>9}"
                f"{rates['numpy']:>12.1f}{rates['numpy_new']:>8.1f}{rates['ratio']:>7.2f}",
                flush=True,
            )
    if options.at_least is not None and lowest < options.at_least:
        print(f"a ratio of {lowest:.2f} is below {options.at_least}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
