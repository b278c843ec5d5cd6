"""What a controller answers, as plain records. Fields are those of `crates/api/proto/fibula/v1/north.proto`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Optional, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class Changed:
    """How many objects a request added, changed or removed; `unchanged` were as asked for already.

    `left` hosts that were to be accepted stay unknown: their ports, or switches, have as many as they may. `declared` links were found
    by switches, and count as declared since they were set.
    """

    changed: int = 0
    unchanged: int = 0
    left: int = 0
    declared: int = 0


@dataclass(frozen=True)
class Name:
    """A name in its text form, and the host that it is attached to."""

    name: str
    host: str
    tenant: int = 0
    #: The address that ARP and neighbour discovery answer with this name; empty: none.
    ip: str = ""
    #: When a switch saw it first, in milliseconds since 1970; 0: it was declared. Ignored in requests.
    learnt_ms: int = 0


@dataclass(frozen=True)
class End:
    """A port of a switch."""

    switch: str
    port: int


@dataclass(frozen=True)
class Host:
    """A host port of a switch, under a name of its own; `learnt`: names that were learnt there.

    `latest`: of these the one that came last; `latest_ms`: when, in milliseconds since 1970.
    """

    name: str
    switch: str
    port: int
    learnt: int = 0
    latest: str = ""
    latest_ms: int = 0


@dataclass(frozen=True)
class SeenHost:
    """A name that a switch saw at a port that learns, and why it did not become one that counts."""

    name: str
    ip: str
    at: End
    tenant: int
    first_ms: int
    last_ms: int
    why: str


@dataclass(frozen=True)
class Hosts:
    """Hosts; names that were seen and not learnt; a sentence for each port or name with which something is wrong."""

    hosts: tuple[Host, ...]
    unknown: tuple[SeenHost, ...]
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class MemoryPart:
    """What a part of a daemon takes."""

    part: str
    bytes: int


@dataclass(frozen=True)
class MemoryUse:
    """What holds the memory of a daemon."""

    names: int
    resident_bytes: int
    peak_bytes: int
    parts: tuple[MemoryPart, ...]


@dataclass(frozen=True)
class Rates:
    """A second's frames, bytes and drops, between the last two times that a switch said what it counted; `age_ms`: how long ago.

    `drops`: of a whole switch.
    """

    age_ms: int
    frames_in: float
    frames_out: float
    bytes_in: float
    bytes_out: float
    drops: float


@dataclass(frozen=True)
class PortCounters:
    """What a port of a switch counted since its start. `device_there`: who says in LLDP that it is at the other end."""

    port: int
    device: str
    role: str
    up: bool
    frames_in: int
    bytes_in: int
    frames_out: int
    bytes_out: int
    rates: Optional[Rates]
    hellos_lost: int
    device_there: str


@dataclass(frozen=True)
class DropCount:
    """Frames that a switch dropped for a reason, what that means, and what to do."""

    reason: str
    total: int
    a_second: float
    why: str


@dataclass(frozen=True)
class Counters:
    """What a switch counted since its start, as it said `age_ms` ago."""

    ports: tuple[PortCounters, ...]
    drops: tuple[DropCount, ...]
    received: int
    sent: int
    age_ms: int


@dataclass(frozen=True)
class Switch:
    """A switch. `cannot_follow` says why it cannot hold what it should; empty: it can.

    `sharing`: other switches with hosts that have no value of their own there; `drained`: no path of others leads through it; `tenants`:
    it holds the names of these alone, or of all if there are none; `served_by`: the other controller that it is connected to.
    """

    name: str
    id: int
    connected: bool
    in_step: bool
    sent_messages: int
    sent_bytes: int
    acknowledged_messages: int
    hosts: int
    transit: bool
    memory: Optional[MemoryUse]
    cannot_follow: str
    rates: Optional[Rates] = None
    sharing: int = 0
    drained: bool = False
    tenants: tuple[int, ...] = ()
    served_by: str = ""


@dataclass(frozen=True)
class SwitchDetails:
    """A switch with its host ports; `counters`: `None` unless it is connected and has said what it counted."""

    switch: Switch
    hosts: tuple[Host, ...]
    counters: Optional[Counters]


@dataclass(frozen=True)
class PendingSwitch:
    """A switch that attached and has not been added."""

    name: str
    version: str
    address: str
    first_ms: int
    last_ms: int


@dataclass(frozen=True)
class Switches:
    """Switches, and those that wait to be accepted; a sentence for each name that two switches say."""

    switches: tuple[Switch, ...]
    pending: tuple[PendingSwitch, ...]
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifiedPart:
    """A part of a table, at a version that both sides have had."""

    part: str
    version: int
    expected_digest: int
    digest: int


@dataclass(frozen=True)
class Verified:
    """What a switch holds beside what it should; `damage` has a sentence for each table whose memory is wrong."""

    parts: tuple[VerifiedPart, ...]
    damage: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether all is as it should be."""
        return not self.damage and all(part.digest == part.expected_digest for part in self.parts)


@dataclass(frozen=True)
class Link:
    """A cable between two switches. `cut`: its ends found that it carries no frames; `raised`: it is drained.

    `weight`: how many flows it gets beside others on paths of the same length; `None`: the controller knows no weights.
    `found`: its switches found it, and no operator has declared it or set anything of it.
    """

    a: End
    b: End
    cost: int
    up: bool
    cut: bool
    raised: int
    weight: Optional[int]
    found: bool = False


@dataclass(frozen=True)
class Links:
    """Links; undeclared cables that both ends see; a sentence for each trunk with another neighbour than declared."""

    links: tuple[Link, ...]
    found: tuple[Link, ...]
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class Drained:
    """How many changes of paths a drain took, and how many host ports are still reached."""

    steps: int
    hosts: int


@dataclass(frozen=True)
class Status:
    """A controller as a whole. Empty `leader`: this one leads."""

    version: str
    name_kind: str
    value_mode: str
    hash: str
    names: int
    max_names: int
    switches: int
    connected: int
    hosts: int
    links: int
    changes: int
    transactions: int
    messages: int
    message_bytes: int
    resyncs: int
    uptime_seconds: float
    pending_pushes: int
    leader: str
    drained: bool
    position: Optional[int]
    #: The number of the last event.
    last_event: int


@dataclass(frozen=True)
class Event:
    """Something that happened. `kind`: link, switch, host, names, controller; `level`: good, info, warning, bad.

    Numbers go up, also when the controller starts again. Of kind `gap`: `missed` events in between are no longer kept.
    """

    sequence: int
    at_ms: int
    kind: str
    level: str
    subject: str
    text: str
    missed: int = 0


@dataclass(frozen=True)
class Hop:
    """What a switch does with a frame, and the port by which it leaves, of several ways the first.

    `value` and `action`: what its tables must have for the name; `None` and `""` where they have no such name.
    """

    switch: str
    does: str
    port: Optional[int]
    value: Optional[int] = None
    action: str = ""


@dataclass(frozen=True)
class Way:
    """The way of a frame that enters at the switch `start`. `end`: delivered, dropped, loops; `sentence` says why."""

    start: str = dataclasses.field(metadata={"named": "from"})
    hops: tuple[Hop, ...]
    end: str
    sentence: str


@dataclass(frozen=True)
class Traced:
    """Where a name is (`None`: nowhere), and the ways of frames to it."""

    record: Optional[Name]
    at: Optional[End]
    paths: tuple[Way, ...]


@dataclass(frozen=True)
class LogState:
    """What a daemon logs, as FIBULA_LOG says it; with what it started; after a change, what it was before."""

    filter: str
    at_start: str
    before: str


#: Records inside others, by the name of the field that holds them.
_INSIDE: dict[str, type[Any]] = {
    "a": End,
    "at": End,
    "b": End,
    "counters": Counters,
    "memory": MemoryUse,
    "pending": PendingSwitch,
    "rates": Rates,
    "record": Name,
    "unknown": SeenHost,
}
#: Records inside one kind of record, most of them in lists, by that and the name of the field.
_LISTS: dict[tuple[type[Any], str], type[Any]] = {
    (Counters, "drops"): DropCount,
    (Counters, "ports"): PortCounters,
    (Hosts, "hosts"): Host,
    (Links, "found"): Link,
    (Links, "links"): Link,
    (MemoryUse, "parts"): MemoryPart,
    (SwitchDetails, "hosts"): Host,
    (SwitchDetails, "switch"): Switch,
    (Switches, "switches"): Switch,
    (Traced, "paths"): Way,
    (Verified, "parts"): VerifiedPart,
    (Way, "hops"): Hop,
}


def of(record: type[R], message: Any) -> R:
    """The record of a message. Its fields are the message's, of the same names but for words that Python keeps to itself."""
    values = {}
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        name = field.metadata.get("named", field.name)
        described = message.DESCRIPTOR.fields_by_name[name]
        value = getattr(message, name)
        inside = _LISTS.get((record, field.name)) or _INSIDE.get(field.name)
        is_list = isinstance(value, (list, tuple)) or hasattr(value, "append")
        if is_list:
            value = tuple(of(inside, item) if inside else item for item in value)
        elif described.has_presence and not message.HasField(name):
            value = None
        elif inside:
            value = of(inside, value)
        values[field.name] = value
    return record(**values)
