"""FIBs: names to actions, in a few bits a name."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

from . import _native
from .arrays import Names, Path, _said, contiguous, native, number_of, out_array, pack, unsigned
from .files import read, write


class Fib:
    """A FIB that does not change, of one kind of name. Make one with `build`, `load` or `from_bytes`.

    A name that it was not built from gets an arbitrary action, unless the design or `fp` says otherwise:
    `false_positive_rate` is the share of such names that get one.
    """

    __slots__ = ("_native", "_actions", "_ports")

    def __init__(self, native: _native.Fib) -> None:
        if not isinstance(native, _native.Fib):
            raise TypeError("make a FIB with Fib.build, Fib.load or Fib.from_bytes")
        self._native = native
        self._actions = tuple(native.actions)
        self._ports = np.array(native.ports, np.int32)
        self._ports.flags.writeable = False

    @classmethod
    def build(
        cls,
        names: Names,
        actions: Union[str, Sequence[str], npt.NDArray[Any]],
        *,
        kind: str = "mac",
        design: str = "concise",
        fp: Optional[float] = None,
        aliens: Optional[str] = None,
        value_bits: Optional[int] = None,
        hash: str = "muladd",
        threads: int = 0,
    ) -> Fib:
        """Builds the FIB of names with their actions, under a new random hash key.

        `actions`: a text a name, such as "port:3", "drop" or "punt"; one text for all; or an array of port numbers.
        `kind`: mac, ipv4, ipv6, 5-tuple, teid, fixed:BYTES or text. `design`: of `fibula.DESIGNS`.
        `fp`: share of other names that may get an action. `aliens`: "checksum" or "bloom", what tells them.
        `threads`: 0 takes all processors.
        """
        packed, n = pack(names, kind)
        texts, numbers = _numbered(actions, n)
        if len(numbers) != n:
            raise ValueError(f"{len(numbers)} actions for {n} names: give one each, or one text for all")
        bits = None if value_bits is None else unsigned(value_bits, 8, "value_bits")
        how = (kind, design, hash)
        return cls(_native.Fib.build(how, packed, texts, numbers, fp, aliens, bits, unsigned(threads, 16, "threads")))

    @classmethod
    def load(cls, path: Path) -> Fib:
        """Reads a FIB file, as `save` or `fibula fib build` writes it."""
        return cls(read(path, _native.Fib.decode))

    @classmethod
    def from_bytes(cls, data: bytes) -> Fib:
        """The FIB in the bytes of a file."""
        return cls(_native.Fib.decode(data))

    def save(self, path: Path) -> None:
        """Writes a FIB file, for its owner alone: it holds the hash key."""
        write(path, self.to_bytes(), 0o600)

    def to_bytes(self) -> bytes:
        """The bytes of a file."""
        return self._native.encode()

    def lookup_batch(self, names: Names, out: Optional[npt.NDArray[np.uint16]] = None) -> npt.NDArray[np.uint16]:
        """The number of each name's action: `actions` has the texts, `ports` the ports.

        `out`, if given, gets the numbers: a contiguous uint16 array of as many places.
        """
        packed, n = pack(names, self._native.kind)
        out = out_array(out, (n,), np.uint16)
        self._native.lookup(packed, out)
        return out

    def lookup(self, name: Union[str, bytes]) -> str:
        """The action of one name. It takes microseconds: look up many with `lookup_batch`."""
        if not isinstance(name, (str, bytes)):
            raise TypeError(f"a {type(name).__name__} is not a name: give str or bytes, or many to lookup_batch")
        return self._actions[int(self.lookup_batch([name])[0])]

    def digests(self, names: Names) -> npt.NDArray[np.uint64]:
        """The keyed 64-bit hashes of names."""
        packed, n = pack(names, self._native.kind)
        out = np.empty(n, np.uint64)
        self._native.digests(packed, out)
        return out

    def lookup_digests(
        self, digests: npt.NDArray[np.uint64], out: Optional[npt.NDArray[np.uint16]] = None
    ) -> npt.NDArray[np.uint16]:
        """As `lookup_batch`, of what `digests` gave. Designs that hold whole names cannot."""
        if not isinstance(digests, np.ndarray) or digests.dtype.kind != "u" or digests.dtype.itemsize != 8:
            what = _said(digests) if isinstance(digests, np.ndarray) else f"a {type(digests).__name__}"
            raise TypeError(f"digests are an array of dtype uint64, not {what}")
        if digests.ndim != 1:
            raise ValueError(f"the digests are {_said(digests)}: one dimension is needed")
        digests = contiguous(native(digests, "digests"))
        out = out_array(out, digests.shape, np.uint16)
        self._native.lookup_digests(digests, out)
        return out

    def format_names(self, names: Names) -> list[str]:
        """Names in their text form."""
        return _native.format_names(self._native.kind, pack(names, self._native.kind)[0])

    @property
    def actions(self) -> tuple[str, ...]:
        """The different actions; number 0 is drop."""
        return self._actions

    @property
    def ports(self) -> npt.NDArray[np.int32]:
        """The port of each action, -1 of those without one: `fib.ports[fib.lookup_batch(names)]`."""
        return self._ports

    @property
    def kind(self) -> str:
        """Kind of the names."""
        return self._native.kind

    @property
    def design(self) -> str:
        """The design, as of `fibula.DESIGNS`."""
        return self._native.design

    @property
    def hash(self) -> str:
        """Family of the digests."""
        return self._native.hash

    @property
    def size_bits(self) -> int:
        """Memory that lookups need, in bits, without the texts of actions."""
        return self._native.size_bits

    @property
    def bits_per_name(self) -> float:
        """The same for each name."""
        return self.size_bits / max(len(self), 1)

    @property
    def fingerprint_bits(self) -> int:
        """Bits of a fingerprint, where the design has them."""
        return self._native.fingerprint_bits

    @property
    def false_positive_rate(self) -> float:
        """The share of names that it was not built from that get an action, at most."""
        return self._native.false_positive_rate

    def __len__(self) -> int:
        """Names that it was built from."""
        return self._native.n_names

    def __repr__(self) -> str:
        return f"<fibula.Fib: {self.design}, {len(self)} {self.kind} names, {self.bits_per_name:.1f} bits a name>"


def _numbered(actions: Any, n: int) -> tuple[list[str], npt.NDArray[np.uint32]]:
    if isinstance(actions, str):
        return [actions], np.zeros(n, np.uint32)
    if isinstance(actions, np.ndarray) and actions.dtype.kind in "iu":
        if actions.ndim != 1:
            raise ValueError(f"the actions are {_said(actions)}: one dimension is needed")
        if actions.size and not 0 <= int(actions.min()) <= int(actions.max()) < 1 << 16:
            raise ValueError(f"ports are 0 to 65535, not {int(actions.min())} to {int(actions.max())}")
        ports, numbers = np.unique(actions, return_inverse=True)
        return [f"port:{port}" for port in ports.tolist()], numbers.reshape(-1).astype(np.uint32)
    if isinstance(actions, np.ndarray) and actions.dtype.kind != "U":
        raise TypeError(f"the actions are {_said(actions)}: give texts, or an array of whole numbers, which are ports")
    return number_of(actions.tolist() if isinstance(actions, np.ndarray) else actions, "action")
