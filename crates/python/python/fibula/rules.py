"""Lists of rules over five-tuples: the first rule that matches a flow, or the one of the highest priority, answers."""

from __future__ import annotations

import warnings
from typing import Iterable, NamedTuple, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _native
from .arrays import Names, Path, out_array, pack
from .files import read, write


class Rule(NamedTuple):
    """A rule of a list."""

    #: Its line, from 1.
    line: int
    #: The word that its line begins with, such as "deny".
    action: str


class RuleTable:
    """Rules for IPv4 and IPv6. Make one with `build`, `load` or `from_bytes`."""

    __slots__ = ("_native", "_rules")

    def __init__(self, native: _native.RuleTable) -> None:
        if not isinstance(native, _native.RuleTable):
            raise TypeError("make a table with RuleTable.build, RuleTable.load or RuleTable.from_bytes")
        self._native = native
        self._rules = tuple(Rule(*rule) for rule in native.rules)

    @classmethod
    def build(cls, rules: Union[str, Iterable[str]], *, actions: Iterable[str] = ("permit", "deny")) -> RuleTable:
        """The table of a list: its text, or its lines, such as "deny tcp from 10.0.0.0/8 to any port 22-23".

        `actions`: those that rules may have. Another one is refused, since it is a slip of the pen more often than not.

        Lines of ClassBench, which begin with @, are read, too. Their flags of TCP are not compared, of which a warning tells.
        """
        if not isinstance(rules, str):
            lines = list(rules)
            for at, line in enumerate(lines):
                if not isinstance(line, str):
                    raise TypeError(f"rule {at} is a {type(line).__name__}: give str")
                if len(line.splitlines()) > 1:
                    raise ValueError(f"rule {at} has several lines: give each on its own, or the list as one str")
            rules = "\n".join(line.rstrip("\r\n") for line in lines)
        table, n_flags = _native.RuleTable.build(rules, actions if isinstance(actions, str) else ",".join(actions))
        if n_flags:
            warnings.warn(f"{n_flags} rules have TCP flags, which are not compared: these rules match any flags", stacklevel=2)
        return cls(table)

    @classmethod
    def load(cls, path: Path) -> RuleTable:
        """Reads a file of rules, as `save` or `fibula rules build` writes it."""
        return cls(read(path, _native.RuleTable.decode))

    @classmethod
    def from_bytes(cls, data: bytes) -> RuleTable:
        """The table in the bytes of a file."""
        return cls(_native.RuleTable.decode(data))

    def save(self, path: Path) -> None:
        """Writes a file of rules. It holds the hash key: a new one is readable by its owner alone."""
        write(path, self.to_bytes(), 0o600)

    def to_bytes(self) -> bytes:
        """The bytes of a file."""
        return self._native.encode()

    def lookup_batch(self, flows: Names, out: Optional[npt.NDArray[np.uint32]] = None) -> npt.NDArray[np.uint32]:
        """The number of the rule that answers for each flow, 0 if none does: `rules[number - 1]` is the rule.

        `flows`: texts such as "10.0.0.1:80->10.0.0.2:443/tcp", or an array of dtype 'S13' (IPv4) or 'S37' (IPv6): source and
        destination address, protocol, source and destination port, in the order in which packets carry their bytes.
        """
        packed, n = pack(flows, "5-tuple")
        out = out_array(out, (n,), np.uint32)
        self._native.lookup(packed, out)
        return out

    def lookup(self, flow: Union[str, bytes]) -> Optional[Rule]:
        """The rule that answers for one flow; None if none does."""
        number = int(self.lookup_batch([flow])[0])
        return self._rules[number - 1] if number else None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in the order of the list; number n of a lookup is the one at n - 1."""
        return self._rules

    @property
    def n_tables(self) -> tuple[int, int]:
        """Hash tables of IPv4 and of IPv6, of which a lookup reads some."""
        return self._native.n_tables

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        v4, v6 = self.n_tables
        return f"<fibula.RuleTable: {len(self)} rules in {v4} hash tables of IPv4 and {v6} of IPv6>"
