"""What users give, as the native half takes it: contiguous arrays of one type, or an exception that says what is wrong."""

from __future__ import annotations

import os
import sys
from typing import Any, Iterable, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from ._native import name_width, parse_names

#: Names: an array of bytes of dtype 'S6' or 'V6' (6 is the width of the kind), or of uint8 with shape (n, 6); of names of
#: 8 bytes also uint64; or a list of texts or of bytes.
Names = Union[npt.NDArray[Any], Iterable[Union[str, bytes]]]
#: Names as the native half takes them: bytes, bytes of a name, and where names begin if they differ in length.
Packed = Tuple[npt.NDArray[np.uint8], int, Optional[npt.NDArray[np.uint64]]]
Path = Union[str, "os.PathLike[str]"]


def _said(array: npt.NDArray[Any]) -> str:
    """What an array is, in a message."""
    return f"an array of dtype {array.dtype.str!r} and shape {array.shape}"


def _wanted(kind: str, width: int) -> str:
    if kind == "text":
        return "text names are a list of str or bytes, or an array of dtype 'S'"
    if not width:
        return f"{kind} names are a list of str or bytes, or an array of dtype 'S13' or 'S37', or uint8 of shape (n, 13) or (n, 37)"
    numbers = ", or uint64" if kind == "fixed:8" else ""
    return (
        f"{kind} names are an array of dtype 'S{width}', or uint8 of shape (n, {width}){numbers}, "
        "or a list of str or bytes"
    )


def native(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Refuses numbers in the byte order of other machines."""
    if not array.dtype.isnative:
        order = "big-endian" if sys.byteorder == "little" else "little-endian"
        raise TypeError(
            f"{what} are {_said(array)}, {order} numbers: give {what}.astype({array.dtype.newbyteorder('=').str!r}) "
            f"for the same numbers"
        )
    return array


def contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array whose elements follow one another, each at an address that suits it: a copy, if it is not so."""
    return np.require(array, requirements=["C", "A"])


def rows(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of an array, one after the other; of one that is not contiguous a copy is made."""
    if array.size == 0:
        return np.empty(0, np.uint8)
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def pack(names: Names, kind: str) -> tuple[Packed, int]:
    """Names of a kind, packed, and how many they are.

    An array is taken as it is, without a copy, if it is contiguous, and copied otherwise.
    """
    width = name_width(kind)
    if isinstance(names, np.ndarray):
        return _pack_array(names, kind, width)
    if isinstance(names, (str, bytes, bytearray)):
        raise TypeError(f"one name where several belong: give [{names!r}]")
    items = list(names)
    types = {type(item) for item in items}
    if types <= {str}:
        data, starts = parse_names(kind, items)
    elif types <= {bytes}:
        data = b"".join(items)
        starts = np.concatenate(([0], np.cumsum(np.fromiter(map(len, items), np.uint64, len(items)))))  # type: ignore[assignment]
    else:
        at = next(at for at, item in enumerate(items) if type(item) is not type(items[0]) or type(item) not in (str, bytes))
        raise TypeError(f"name {at} is a {type(items[at]).__name__}: {_wanted(kind, width)}")
    return (np.frombuffer(data, np.uint8), width, np.asarray(starts, np.uint64)), len(items)


def _pack_array(names: npt.NDArray[Any], kind: str, width: int) -> tuple[Packed, int]:
    what, given = names.dtype.kind, f"the names are {_said(names)}: "
    if what in "SV":
        if names.ndim != 1:
            raise ValueError(given + "one dimension is needed")
        if kind == "text" and what == "S":
            # They are padded with zeros, which no text has.
            return pack(names.tolist(), kind)
        item = names.dtype.itemsize
    elif names.dtype == np.uint8:
        if names.ndim != 2:
            raise ValueError(given + _wanted(kind, width))
        item = names.shape[1]
    elif what == "u" and names.dtype.itemsize == 8 and kind == "fixed:8":
        if names.ndim != 1:
            raise ValueError(given + "one dimension is needed")
        # The bytes of a name are those of the number, lowest first.
        names, item = native(names, "names").astype("<u8", copy=False), 8
    elif what == "U":
        raise TypeError(given + "give a list, names.tolist(): texts in arrays have four bytes a letter")
    else:
        raise TypeError(given + _wanted(kind, width))
    if item != (width or item) or kind == "text" or (not width and item not in (13, 37)):
        raise ValueError(given + _wanted(kind, width))
    return (rows(names), item, None), names.shape[0]


def out_array(out: Optional[npt.NDArray[Any]], shape: tuple[int, ...], dtype: type, name: str = "out") -> npt.NDArray[Any]:
    """`out`, if it can take the answers, or a new array."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{name} is a {type(out).__name__}: give a numpy array of dtype {np.dtype(dtype).name}")
    wanted = f"dtype {np.dtype(dtype).name} and shape {shape}"
    if out.dtype != np.dtype(dtype):
        raise TypeError(f"{name} is {_said(out)}: give one of {wanted}")
    if out.shape != shape:
        raise ValueError(f"{name} is {_said(out)}: give one of {wanted}")
    if not out.flags.c_contiguous or not out.flags.aligned:
        raise ValueError(
            f"{name} has strides {out.strides}, or places at odd addresses: give an array whose elements follow one another"
        )
    if not out.flags.writeable:
        raise ValueError(f"{name} is read-only: give an array that may be written to")
    return out


def number_of(texts: Iterable[str], what: str) -> tuple[list[str], npt.NDArray[np.uint32]]:
    """Different texts, and which of them each one is."""
    numbers: dict[str, int] = {}
    given = []
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{what} {at} is a {type(text).__name__}: give str")
        given.append(numbers.setdefault(text, len(numbers)))
    return list(numbers), np.array(given, np.uint32)


def unsigned(value: int, bits: int, what: str) -> int:
    """Refuses numbers out of range, in words."""
    value = int(value)
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{what} is {value}: give 0 to {(1 << bits) - 1}")
    return value
