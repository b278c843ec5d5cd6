"""Filters: sets of names that answer "no" for sure and "yes" almost."""

from __future__ import annotations

from typing import Optional, Union

import numpy as np
import numpy.typing as npt

from ._native import Filter as _NativeFilter
from .arrays import Names, Path, out_array, pack, unsigned
from .files import read, write


class Filter:
    """A Bloom filter over names of one kind. Make one with `Filter(...)`, `build`, `load` or `from_bytes`.

    `layout`: of `fibula.LAYOUTS`; one-hashing reads one word of a name, standard is the textbook's.
    `capacity` and `fp`: names that it has room for, and the share of other names that get a yes then.
    `bits` and `positions`: its size, instead of these two. `counters`: 4 or 8, so that names can be removed.
    `like`: another filter, to have a union with.
    """

    __slots__ = ("_native",)
    _native: _NativeFilter

    def __init__(
        self,
        *,
        kind: str = "mac",
        layout: str = "one-hashing",
        capacity: Optional[int] = None,
        fp: float = 0.01,
        bits: Optional[int] = None,
        positions: Optional[int] = None,
        counters: Optional[int] = None,
        hash: str = "muladd",
        like: Optional[Filter] = None,
    ) -> None:
        if like is None and (bits is None) != (positions is None):
            raise ValueError("bits and positions belong together: give both, or capacity and fp")
        if like is None and (capacity is None) == (bits is None):
            raise ValueError("give capacity, or bits and positions, or like")
        size = None
        if bits is not None and positions is not None:
            size = (unsigned(bits, 64, "bits"), unsigned(positions, 32, "positions"))
        self._native = _NativeFilter(
            (kind, layout, hash),
            (unsigned(capacity or 0, 64, "capacity"), fp),
            size,
            None if counters is None else unsigned(counters, 8, "counters"),
            None if like is None else like._native,
        )

    @classmethod
    def _of(cls, native: _NativeFilter) -> Filter:
        made = cls.__new__(cls)
        made._native = native
        return made

    @classmethod
    def build(
        cls,
        names: Names,
        *,
        kind: str = "mac",
        layout: str = "one-hashing",
        capacity: Optional[int] = None,
        fp: float = 0.01,
        bits: Optional[int] = None,
        positions: Optional[int] = None,
        counters: Optional[int] = None,
        hash: str = "muladd",
        like: Optional[Filter] = None,
    ) -> Filter:
        """The filter of these names; `capacity` is at least their number."""
        given = names if isinstance(names, np.ndarray) else list(names)
        if like is None and bits is None:
            capacity = max(len(given), capacity or 0, 1)
        made = cls(
            kind=kind,
            layout=layout,
            capacity=capacity,
            fp=fp,
            bits=bits,
            positions=positions,
            counters=counters,
            hash=hash,
            like=like,
        )
        made.insert(given)
        return made

    @classmethod
    def load(cls, path: Path) -> Filter:
        """Reads a filter file, as `save` or `fibula filter build` writes it."""
        return cls._of(read(path, _NativeFilter.decode))

    @classmethod
    def from_bytes(cls, data: bytes) -> Filter:
        """The filter in the bytes of a file."""
        return cls._of(_NativeFilter.decode(data))

    def save(self, path: Path) -> None:
        """Writes a filter file, for its owner alone: it holds the hash key."""
        write(path, self.to_bytes(), 0o600)

    def to_bytes(self) -> bytes:
        """The bytes of a file."""
        return self._native.encode()

    def insert(self, names: Names) -> None:
        """Puts names in; more than it has room for make more false positives."""
        self._native.insert(pack(names, self.kind)[0])

    def remove(self, names: Names) -> npt.NDArray[np.bool_]:
        """Removes names, and says of each whether it was: needs counters.

        **Remove only names that are in.** One that is not in and gets a yes takes bits of others with it.
        """
        packed, n = pack(names, self.kind)
        removed = np.zeros(n, np.bool_)
        self._native.remove(packed, removed)
        return removed

    def contains(self, names: Names, out: Optional[npt.NDArray[np.bool_]] = None) -> npt.NDArray[np.bool_]:
        """Of each name whether it is in: no for sure, or yes almost."""
        packed, n = pack(names, self.kind)
        out = out_array(out, (n,), np.bool_)
        self._native.contains(packed, out)
        return out

    def __contains__(self, name: Union[str, bytes]) -> bool:
        return bool(self.contains([name])[0])

    def update(self, other: Filter) -> None:
        """Takes all names of a filter that was made with `like=` this one."""
        if not isinstance(other, Filter):
            raise TypeError(f"a {type(other).__name__} is not a filter")
        self._native.unite(other._native)

    @property
    def kind(self) -> str:
        """Kind of the names."""
        return self._native.kind

    @property
    def layout(self) -> str:
        """The layout, as of `fibula.LAYOUTS`."""
        return self._native.layout

    @property
    def hash(self) -> str:
        """Family of the digests."""
        return self._native.hash

    @property
    def size_bits(self) -> int:
        """Bits of the filter, without counters."""
        return self._native.size_bits

    @property
    def positions(self) -> int:
        """Bits of a name."""
        return self._native.positions

    @property
    def counters(self) -> int:
        """Bits of a counter; 0 without."""
        return self._native.counters

    @property
    def false_positive_rate(self) -> float:
        """The share of other names that get a yes, as it is filled now."""
        return self._native.false_positive_rate

    @property
    def expected_false_positive_rate(self) -> float:
        """The same, expected of any filter of this size with as many names."""
        return self._native.expected_false_positive_rate

    def __len__(self) -> int:
        """Names that were inserted, less those that were removed."""
        return self._native.n_names

    def __repr__(self) -> str:
        return f"<fibula.Filter: {self.layout}, {len(self)} {self.kind} names, {self.size_bits} bits>"
