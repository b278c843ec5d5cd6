"""Tables of IP prefixes: the next hop of the longest prefix that an address begins with."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

from . import _native
from .arrays import Path, _said, contiguous, native, number_of, out_array, rows
from ._native import parse_names
from .files import read, write

#: Addresses: uint32 (IPv4, the number), dtype 'S4' or 'S16', uint8 of shape (n, 4) or (n, 16); or a list of texts.
Addresses = Union[npt.NDArray[Any], Iterable[str]]


class PrefixTable:
    """Prefixes of IPv4 and IPv6, each with the name of a next hop. Make one with `build`, `load` or `from_bytes`."""

    __slots__ = ("_native", "_hops")

    def __init__(self, native: _native.PrefixTable) -> None:
        if not isinstance(native, _native.PrefixTable):
            raise TypeError("make a table with PrefixTable.build, PrefixTable.load or PrefixTable.from_bytes")
        self._native = native
        self._hops = tuple(native.next_hops)

    @classmethod
    def build(
        cls, prefixes: Iterable[str], next_hops: Union[str, Sequence[str]], *, design: str = "trie"
    ) -> PrefixTable:
        """The table of prefixes, such as "10.0.0.0/8", with a next hop for each, or one for all.

        `design`: trie; or bloom or bloom-pushed, a hash table behind a filter, for comparison.
        """
        texts = list(prefixes)
        for at, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"prefix {at} is a {type(text).__name__}: give str")
        hops, numbers = number_of([next_hops] * len(texts) if isinstance(next_hops, str) else next_hops, "next hop")
        if len(numbers) != len(texts):
            raise ValueError(f"{len(numbers)} next hops for {len(texts)} prefixes: give one each, or one text for all")
        return cls(_native.PrefixTable.build(texts, hops, numbers, design))

    @classmethod
    def load(cls, path: Path) -> PrefixTable:
        """Reads a file of prefixes, as `save` or `fibula lpm build` writes it."""
        return cls(read(path, _native.PrefixTable.decode))

    @classmethod
    def from_bytes(cls, data: bytes) -> PrefixTable:
        """The table in the bytes of a file."""
        return cls(_native.PrefixTable.decode(data))

    def save(self, path: Path) -> None:
        """Writes a file of prefixes."""
        write(path, self.to_bytes(), 0o644)

    def to_bytes(self) -> bytes:
        """The bytes of a file."""
        return self._native.encode()

    def lookup_batch(self, addresses: Addresses, out: Optional[npt.NDArray[np.uint32]] = None) -> npt.NDArray[np.uint32]:
        """The number of each address's next hop, 0 without a route: `next_hops[number - 1]` is its name."""
        if isinstance(addresses, np.ndarray):
            return self._lookup_array(addresses, out)
        if isinstance(addresses, str):
            raise TypeError(f"one address where several belong: give [{addresses!r}]")
        texts = list(addresses)
        for at, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"address {at} is a {type(text).__name__}: give str")
        out = out_array(out, (len(texts),), np.uint32)
        is_ipv6 = np.array([":" in text for text in texts], np.bool_)
        for kind, width, which in (("ipv4", 4, ~is_ipv6), ("ipv6", 16, is_ipv6)):
            places = np.flatnonzero(which)
            data, _ = parse_names(kind, [texts[at] for at in places])
            array = np.frombuffer(data, np.uint8).reshape(-1, width)
            out[places] = self._lookup_array(array, None)
        return out

    def _lookup_array(self, addresses: npt.NDArray[Any], out: Optional[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
        wanted = "addresses are uint32, or dtype 'S4' or 'S16', or uint8 of shape (n, 4) or (n, 16), or a list of str"
        given = f"the addresses are {_said(addresses)}: {wanted}"
        dtype = addresses.dtype
        if dtype.kind == "u" and dtype.itemsize == 4:
            if addresses.ndim != 1:
                raise ValueError(given)
            numbers, width = contiguous(native(addresses, "addresses")), 0
        elif dtype.kind in "SV" or dtype == np.uint8:
            width = dtype.itemsize if dtype != np.uint8 else addresses.shape[-1] if addresses.ndim == 2 else 0
            if width not in (4, 16) or (dtype != np.uint8 and addresses.ndim != 1):
                raise ValueError(given)
            numbers = rows(addresses).view(">u4").astype(np.uint32) if width == 4 else rows(addresses)
        else:
            raise TypeError(given)
        out = out_array(out, addresses.shape[:1], np.uint32)
        if width == 16:
            self._native.lookup_ipv6(numbers, out)
        else:
            self._native.lookup_ipv4(numbers, out)
        return out

    def lookup(self, address: str) -> Optional[str]:
        """The next hop of one address; None without a route."""
        number = int(self.lookup_batch([address])[0])
        return self._hops[number - 1] if number else None

    @property
    def next_hops(self) -> tuple[str, ...]:
        """Names of the next hops; number n of a lookup is the one at n - 1."""
        return self._hops

    @property
    def n_ipv4(self) -> int:
        """Prefixes of IPv4."""
        return self._native.n_prefixes[0]

    @property
    def n_ipv6(self) -> int:
        """Prefixes of IPv6."""
        return self._native.n_prefixes[1]

    @property
    def design(self) -> str:
        """trie, bloom or bloom-pushed."""
        return self._native.design

    def __len__(self) -> int:
        return sum(self._native.n_prefixes)

    def __repr__(self) -> str:
        return f"<fibula.PrefixTable: {self.design}, {self.n_ipv4} IPv4 and {self.n_ipv6} IPv6 prefixes>"
