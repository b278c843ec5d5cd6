"""Flow tables: exact keys, values, and a lifetime for each flow."""

from __future__ import annotations

import enum
from typing import Any, Iterable, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _native
from .arrays import _said, contiguous, native, out_array, rows, unsigned

#: Keys: an array of dtype 'S16' (16 is the width), or uint8 of shape (n, 16), or uint64 of shape (n, 2); or a list of bytes.
Keys = Union[npt.NDArray[Any], Iterable[bytes]]

#: Keys, of dtype 'V16' (16 is the width), and values.
Items = Tuple[npt.NDArray[np.void], npt.NDArray[np.uint64]]


class Inserted(enum.IntEnum):
    """What became of a flow that was to be inserted."""

    NEW = 0
    #: It was there, and has this value and lifetime now.
    REPLACED = 1
    #: It was there, and stays as it was.
    EXISTS = 2
    #: There is no room for it: `grow`, or let flows end.
    FULL = 3


class FlowTable:
    """A table of flows whose keys have 8, 16 or 40 bytes, and whose values are one or two numbers of 64 bits.

    The time is what `advance` is given, in units of the caller's choice. A flow ends when its lifetime has passed; lookups do not
    find it from then on, and `scan` takes it out. Call `scan` at least every 16,000 units.
    There is no file format: flows come and go.
    """

    __slots__ = ("_native",)

    def __init__(
        self,
        capacity: int,
        *,
        key_bytes: int = 16,
        value_words: int = 1,
        max_capacity: Optional[int] = None,
        hash: str = "muladd",
        now: int = 0,
    ) -> None:
        most = capacity if max_capacity is None else max_capacity
        self._native = _native.FlowTable(
            unsigned(key_bytes, 16, "key_bytes"),
            unsigned(value_words, 16, "value_words"),
            unsigned(capacity, 63, "capacity"),
            unsigned(most, 63, "max_capacity"),
            hash,
            unsigned(now, 64, "now"),
        )

    def insert(
        self, keys: Keys, values: npt.NDArray[Any], lifetime: int, *, replace: bool = False
    ) -> npt.NDArray[np.uint8]:
        """Inserts flows that live as long, in order; of those that are there, changes value and lifetime if `replace`.

        Returns an `Inserted` for each.
        """
        packed, n = self._pack(keys)
        if not isinstance(values, np.ndarray):
            values = np.array(values, np.uint64)
        if values.dtype.kind != "u" or values.dtype.itemsize != 8:
            raise TypeError(f"the values are {_said(values)}: give dtype uint64")
        words = self.value_words
        if values.shape != ((n,) if words == 1 else (n, words)) and values.shape != (n, words):
            raise ValueError(f"the values are {_said(values)}: give {words} for each of {n} keys")
        values = contiguous(native(values, "values")).reshape(-1)
        done = np.zeros(n, np.uint8)
        self._native.put(packed, values, unsigned(lifetime, 16, "lifetime"), replace, done)
        return done

    def lookup(
        self,
        keys: Keys,
        out: Optional[npt.NDArray[np.uint64]] = None,
        found: Optional[npt.NDArray[np.bool_]] = None,
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """The values of flows, and of each whether it is there. Where not, `out` keeps what it had, a new array 0."""
        packed, n = self._pack(keys)
        shape = (n,) if self.value_words == 1 else (n, self.value_words)
        if out is None:
            out = np.zeros(shape, np.uint64)
        out = out_array(out, shape, np.uint64)
        found = out_array(found, (n,), np.bool_, "found")
        self._native.lookup(packed, out.reshape(-1), found)
        return out, found

    def remove(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """Removes flows, and says of each whether it was there."""
        packed, n = self._pack(keys)
        removed = np.zeros(n, np.bool_)
        self._native.remove(packed, removed)
        return removed

    def advance(self, now: int) -> None:
        """Tells the time."""
        self._native.advance(unsigned(now, 64, "now"))

    def scan(self) -> Items:
        """Takes out all flows that have ended, and returns their keys and values."""
        return self._items(self._native.scan())

    def items(self) -> Items:
        """Keys and values of all flows that have not ended, in no order."""
        return self._items(self._native.items())

    def grow(self) -> None:
        """Doubles the capacity, up to `max_capacity`."""
        self._native.grow()

    def clear(self) -> None:
        """Removes all flows."""
        self._native.clear()

    def _items(self, items: tuple[bytes, npt.NDArray[np.uint64]]) -> Items:
        keys = np.frombuffer(items[0], np.dtype((np.void, self.key_bytes)))
        values = items[1] if self.value_words == 1 else items[1].reshape(-1, self.value_words)
        return keys, values

    def _pack(self, keys: Keys) -> tuple[npt.NDArray[np.uint8], int]:
        width = self.key_bytes
        wanted = (
            f"keys of {width} bytes are an array of dtype 'S{width}', or uint8 of shape (n, {width}), "
            f"or uint64 of shape (n, {width // 8}), or a list of bytes"
        )
        if not isinstance(keys, np.ndarray):
            if isinstance(keys, (str, bytes)):
                raise TypeError(f"one key where several belong: {wanted}")
            items = list(keys)
            for at, item in enumerate(items):
                if not isinstance(item, bytes):
                    raise TypeError(f"key {at} is a {type(item).__name__}: {wanted}")
                if len(item) != width:
                    raise ValueError(f"key {at} has {len(item)} bytes: {wanted}")
            return np.frombuffer(b"".join(items), np.uint8), len(items)
        given = f"the keys are {_said(keys)}: {wanted}"
        if keys.dtype.kind in "SV":
            if keys.ndim != 1 or keys.dtype.itemsize != width:
                raise ValueError(given)
        elif keys.dtype == np.uint8:
            if keys.ndim != 2 or keys.shape[1] != width:
                raise ValueError(given)
        elif keys.dtype.kind == "u" and keys.dtype.itemsize == 8:
            if keys.shape[1:] != (width // 8,) and (width, keys.ndim) != (8, 1):
                raise ValueError(given)
            keys = native(keys, "keys").astype("<u8", copy=False)
        else:
            raise TypeError(given)
        return rows(keys), keys.shape[0]

    @property
    def capacity(self) -> int:
        """Slots; some 95 % of them can be filled."""
        return self._native.capacity

    @property
    def key_bytes(self) -> int:
        """Bytes of a key."""
        return self._native.key_bytes

    @property
    def value_words(self) -> int:
        """Numbers of a value."""
        return self._native.value_words

    @property
    def now(self) -> int:
        """The time that it was told last."""
        return self._native.now

    @property
    def size_bytes(self) -> int:
        """Memory of the table."""
        return self._native.size_bytes

    def __len__(self) -> int:
        """Flows that have not ended. It visits all slots."""
        return len(self._native)

    def __repr__(self) -> str:
        return f"<fibula.FlowTable: {self.capacity} slots, keys of {self.key_bytes} bytes>"
