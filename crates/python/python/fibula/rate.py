"""What numpy batches reach of the rate of Rust: same table, same names, one process, one thread, in turns.

    python -m fibula.rate [--names 1M,4M] [--designs concise,line] [--passes 25] [--at-least 0.8]

`rust` is the reader of the table over packed names, two bursts in flight, as a switch looks names up; `library` is
`Fib::lookup_batch` of the Rust library over its own `Name`s. `ratio` is that of numpy to the faster one: of each turn, in
which every one of them has a pass, and of these the median.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from typing import Optional

import numpy as np
import numpy.typing as npt

from . import Fib, __version__, _native
from .arrays import pack

#: Ports that names have.
PORTS = 48


def size(text: str) -> int:
    """A number with K or M, for powers of two."""
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper())
    try:
        return int(text[:-1]) * factor if factor else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is no number of names: write 1000, 64K or 4M") from None


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
    seconds: dict[str, list[float]] = {"rust": [], "library": [], "numpy": [], "numpy_new": []}

    def with_out() -> float:
        start = time.perf_counter()
        fib.lookup_batch(names, out=out)
        return time.perf_counter() - start

    def with_new_array() -> float:
        start = time.perf_counter()
        fib.lookup_batch(names)
        return time.perf_counter() - start

    # Those that are compared follow one another: other programs may take the processor at any time.
    ways = [
        ("library", rust.library),
        ("numpy", with_out),
        ("rust", lambda: rust.packed(packed)),
        ("numpy_new", with_new_array),
    ]
    # The first turn warms caches and memory up.
    for turn in range(passes + 1):
        for way, run in ways if turn % 2 else reversed(ways):
            took = run()
            if turn:
                seconds[way].append(took)
    if not np.array_equal(fib.ports[out], expected):
        raise AssertionError(f"{design}: a name has another port than it was given")
    turns = list(zip(seconds["rust"], seconds["library"], seconds["numpy"]))
    rates = {way: n / statistics.median(times) / 1e6 for way, times in seconds.items()}
    return {**rates, "ratio": statistics.median(min(rust, library) / numpy for rust, library, numpy in turns)}


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
    parser.add_argument("--names", default="1M,4M", help="sizes, separated by commas (1M,4M)")
    parser.add_argument("--designs", default="concise,line", help="designs, separated by commas (concise,line)")
    parser.add_argument("--passes", type=int, default=25, help="turns that count (25)")
    parser.add_argument("--at-least", type=float, default=None, help="the least ratio: below it the exit code is 1")
    options = parser.parse_args(arguments)
    try:
        sizes = [size(text) for text in options.names.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    print(machine())
    print("M lookups/s of MAC names, one thread, medians")
    print(f"{'design':<12}{'names':>10}{'rust':>9}{'library':>9}{'numpy out=':>12}{'numpy':>8}{'ratio':>7}")
    lowest = float("inf")
    for design in options.designs.split(","):
        for n in sizes:
            rates = measured(design, n, options.passes)
            lowest = min(lowest, rates["ratio"])
            print(
                f"{design:<12}{n:>10,}{rates['rust']:>9.1f}{rates['library']:>9.1f}"
                f"{rates['numpy']:>12.1f}{rates['numpy_new']:>8.1f}{rates['ratio']:>7.2f}",
                flush=True,
            )
    if options.at_least is not None and lowest < options.at_least:
        print(f"a ratio of {lowest:.2f} is below {options.at_least}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
