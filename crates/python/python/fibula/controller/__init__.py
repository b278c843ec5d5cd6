"""An asyncio client of a controller: status, names, switches, hosts, links, events.

>>> async with Controller("http://127.0.0.1:4600") as controller:   # doctest: +SKIP
...     await controller.names.put([Name("02:00:00:00:00:01", "h1")])

It needs grpcio and protobuf: `pip install 'fibula[controller]'`. A refusal of the controller is a `ControllerError` with its
sentence. With https the certificate of the server is checked as the command `fibula` does it: against the authority and the host
of the URL, and that its holder is a controller. Limits: a stream (`export`, `import_`, `events`) that breaks because the controller
came back with another certificate is not begun again; the next request that is not a stream checks that certificate, and all go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from typing import Any, Optional, Union

from . import errors, records, server, wire
from .credentials import Credentials
from .errors import BadRequest, ControllerError, ImportStopped, NotAllowed, NotThere, Refused, Unreachable
from .records import (
    Changed,
    Counters,
    Drained,
    DropCount,
    End,
    Event,
    Hop,
    Host,
    Hosts,
    Link,
    Links,
    LogState,
    MemoryPart,
    MemoryUse,
    Name,
    PendingSwitch,
    PortCounters,
    Rates,
    SeenHost,
    Status,
    Switch,
    SwitchDetails,
    Switches,
    Traced,
    Verified,
    VerifiedPart,
    Way,
)

#: Where the command looks for a controller, too.
DEFAULT = "127.0.0.1:4600"
#: As of the server: `MAX_MESSAGE_BYTES` in crates/api.
_MAX_MESSAGE_BYTES = (64 << 20) + (1 << 10)
#: Batches of an import that are sent before the first of them is committed.
_AHEAD = 4

#: A port of a switch, as `End` or as "s1:3".
Port = Union[End, str]
#: Records, or tuples of their fields in order.
Named = Union[Name, tuple[str, str], tuple[str, str, int], tuple[str, str, int, str]]


def _end(port: Port) -> Any:
    if isinstance(port, str):
        switch, _, number = port.rpartition(":")
        if not switch or not number.isdigit():
            raise ValueError(f"`{port}` is not a port of a switch; write it like s1:3")
        port = End(switch, int(number))
    return wire.message("LinkEnd", switch=port.switch, port=port.port)


def _record(name: Named) -> Any:
    if not isinstance(name, Name):
        if not isinstance(name, tuple) or not 2 <= len(name) <= 4:
            raise TypeError(f"{name!r} is not a name: give Name(name, host), or (name, host[, tenant[, ip]])")
        name = Name(*name)
    return wire.message("NameRecord", name=name.name, host=name.host, tenant=name.tenant, ip=name.ip)


class Controller:
    """A connection to a controller; of several, separated by commas, to the one that leads.

    `url`: http://HOST:PORT, https://HOST:PORT, unix:PATH, or HOST:PORT, which is https with a certificate; without one
    FIBULA_CONTROLLER says it, or it is 127.0.0.1:4600. `credentials`: a certificate for https; without it that of the
    command (`Credentials.default`). `timeout`: seconds for a request; imports and exports have none.
    """

    def __init__(
        self, url: Optional[str] = None, *, credentials: Optional[Credentials] = None, timeout: float = 30.0
    ) -> None:
        self._urls = [at.strip() for at in (url or os.environ.get("FIBULA_CONTROLLER") or DEFAULT).split(",")]
        self._credentials = credentials if credentials is not None else Credentials.default()
        self._timeout = timeout
        self._channel: Any = None
        # The certificate that the channel trusts.
        self._certificate: Optional[bytes] = None
        # Of requests that fail together one opens another channel. Made when it is needed: before Python 3.10 it belongs to a loop.
        self._reopening: Optional[asyncio.Lock] = None
        self.url = self._urls[0]
        self.names = Names(self)
        self.switches = SwitchSet(self)
        self.hosts = HostSet(self)
        self.links = LinkSet(self)

    async def __aenter__(self) -> Controller:
        await self.connect()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connects, and makes sure that a controller answers.

        Raises `Unreachable` if none does.
        """
        await self.close()
        failed: Optional[ControllerError] = None
        follower: Optional[str] = None
        for url in self._urls:
            try:
                await self._open(url)
                leads = not (await self.status()).leader
            except NotAllowed:
                # Clients that may not ask which one leads learn that from any controller.
                leads = True
            except Unreachable as error:
                failed, leads = error, False
                await self.close()
                continue
            if leads or len(self._urls) == 1:
                return
            follower = url
            await self.close()
        if follower is not None:
            await self._open(follower)
        elif failed is not None:
            raise failed

    async def close(self) -> None:
        """Ends the connection."""
        if self._channel is not None:
            await self._channel.close()
        self._channel = self._certificate = None

    async def _open(self, url: str) -> None:
        target, is_secure = _target(url, self._credentials is not None)
        options = [
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
            # Each has connections of its own, and so its own certificate.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if not is_secure:
            self._channel = wire.grpc.aio.insecure_channel(target, options=options)
        elif self._credentials is None:
            raise ValueError(
                f"{url} takes a certificate, and there is none; give credentials=Credentials.load(DIR) "
                "of a directory that `fibula pki issue` made"
            )
        else:
            self._certificate = await server.certificate_of(url, target, self._credentials, self._timeout)
            shown = wire.grpc.ssl_channel_credentials(
                self._certificate, self._credentials.key, self._credentials.cert
            )
            self._channel = wire.grpc.aio.secure_channel(target, shown, options=options)
        self.url = url

    def _call(self, method: str) -> Any:
        if self._channel is None:
            raise RuntimeError("not connected: use `async with Controller(...) as controller`, or await connect()")
        return wire.call(self._channel, method)

    async def _ask(self, method: str, request: str, /, **fields: Any) -> Any:
        return await self._send(method, wire.message(request, **fields))

    async def _send(self, method: str, message: Any) -> Any:
        channel = self._channel
        try:
            return await self._call(method)(message, timeout=self._timeout)
        except wire.grpc.aio.AioRpcError as error:
            if not await self._has_another_certificate(channel, error):
                raise errors.of(error, self.url) from None
        try:
            return await self._call(method)(message, timeout=self._timeout)
        except wire.grpc.aio.AioRpcError as error:
            raise errors.of(error, self.url) from None

    async def _has_another_certificate(self, channel: Any, error: Any) -> bool:
        """Whether the handshake of a channel failed because the controller has been given another certificate, which is
        trusted now, by the present channel.

        Nothing was sent then.
        """
        if "CERTIFICATE_VERIFY_FAILED" not in (error.details() or ""):
            return False
        if self._reopening is None:
            self._reopening = asyncio.Lock()
        async with self._reopening:
            # Another request may have opened one meanwhile, or it may have been closed.
            if self._channel is not channel:
                return self._channel is not None
            if self._certificate is None:
                return False
            await self._open(self.url)
        # Others that wait for it have failed, too: they are to find that out.
        await channel.close(self._timeout)
        return True

    async def _change(self, method: str, request: str, /, **fields: Any) -> Changed:
        return records.of(Changed, await self._ask(method, request, **fields))

    async def status(self) -> Status:
        """The controller as a whole."""
        return records.of(Status, await self._ask("GetStatus", "GetStatusRequest"))

    async def rekey(self) -> Changed:
        """Chooses another hash key, and sends every switch a new table."""
        return await self._change("Rekey", "RekeyRequest")

    async def events(
        self, *, after: int = 0, kinds: Iterable[str] = (), once: bool = False
    ) -> AsyncGenerator[Event, None]:
        """What happens, as it happens: the events that are kept (the last 1,000), and then others as they come.

        `after`: only those after this number; the status has the last one so far. `kinds`: only these of link, switch, host,
        names, controller. `once`: end after the events that there are. Raises `Unreachable` when the connection breaks: ask
        again after the number of the last event, and what came meanwhile follows.
        """
        if isinstance(kinds, str):
            raise TypeError(f"one kind where several belong: give [{kinds!r}]")
        stream = self._stream("Watch", wire.message("WatchRequest", after=after, kinds=list(kinds), once=once))
        try:
            async for message in stream:
                yield records.of(Event, message)
        finally:
            await stream.aclose()

    async def trace(self, name: str, *, start: str = "") -> Traced:
        """Which switches a frame to `name` passes that enters at the switch `start`, and where it ends.

        Without `start`: the end of the way from every switch with hosts.
        """
        return records.of(Traced, await self._ask("Trace", "TraceRequest", name=name, **{"from": start}))

    async def log(self, filter: Optional[str] = None) -> LogState:
        """What the controller logs. With `filter`, such as "info" or "info,h2=warn", it logs by that until it starts again."""
        return await self._log("", filter)

    async def _log(self, switch: str, filter: Optional[str]) -> LogState:
        if filter is None:
            return records.of(LogState, await self._ask("GetLog", "GetLogRequest", switch=switch))
        return records.of(LogState, await self._ask("SetLog", "SetLogRequest", switch=switch, filter=filter))

    async def _stream(self, method: str, request: Any) -> AsyncGenerator[Any, None]:
        """The messages of a stream. A caller that stops reading must close it."""
        stream = self._call(method)(request)
        try:
            async for message in stream:
                yield message
        except wire.grpc.aio.AioRpcError as error:
            raise errors.of(error, self.url) from None
        finally:
            stream.cancel()

    async def set_drained(self, drained: bool) -> int:
        """Whether this controller serves switches; returns how many were connected."""
        return int((await self._ask("SetDrained", "SetDrainedRequest", drained=drained)).switches)


def _target(url: str, has_certificate: bool) -> tuple[str, bool]:
    """A URL as grpcio names it, and whether it is one with TLS."""
    wrong = ValueError(
        f"{url!r} is not the URL of a controller; write it like https://10.0.0.1:4600 or unix:/run/fibula/controller.sock"
    )
    scheme, found, rest = url.partition("://")
    if url.startswith("unix:"):
        if not url[5:].startswith("/"):
            raise wrong
        return url.replace("unix:///", "unix:/"), False
    if not found:
        scheme, rest = ("https" if has_certificate else "http"), url
    host, _, port = rest.rstrip("/").rpartition(":")
    if scheme not in ("http", "https") or not host or not port.isdigit() or "/" in rest.rstrip("/"):
        raise wrong
    return rest.rstrip("/"), scheme == "https"


class Names:
    """The names of a controller: `controller.names`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def get(self, name: str) -> Name:
        """One name. Raises `NotThere`."""
        return records.of(Name, await self._controller._ask("GetName", "GetNameRequest", name=name))

    async def at(self, address: str) -> Name:
        """The name that has an IP address. Raises `NotThere`."""
        return records.of(Name, await self._controller._ask("GetName", "GetNameRequest", ip=address))

    async def find(self, prefix: str, *, limit: int = 100) -> tuple[tuple[Name, ...], bool]:
        """The first names, at most 10,000, whose text begins so, and whether there are more: fast among millions."""
        reply = await self._controller._ask("ListNames", "ListNamesRequest", prefix=prefix, limit=limit)
        return tuple(records.of(Name, message) for message in reply.names), reply.more

    async def put(self, names: Iterable[Named], *, only_new: bool = False) -> Changed:
        """Adds or changes names, all in one transaction; with `only_new`, refused if one of them exists."""
        given = [_record(name) for name in names]
        return await self._controller._change("PutNames", "PutNamesRequest", names=given, only_new=only_new)

    async def remove(self, names: Iterable[str], *, ignore_missing: bool = False) -> Changed:
        """Removes names, all in one transaction."""
        if isinstance(names, str):
            raise TypeError(f"one name where several belong: give [{names!r}]")
        given = list(names)
        return await self._controller._change(
            "RemoveNames", "RemoveNamesRequest", names=given, ignore_missing=ignore_missing
        )

    async def list(self, *, learnt: bool = False, host: str = "", page: int = 1000) -> AsyncIterator[Name]:
        """All names, or only those that are learnt, or at a host, in the order of their bytes; fetched page by page."""
        after, more = "", True
        while more:
            reply = await self._controller._ask(
                "ListNames", "ListNamesRequest", after=after, limit=page, learnt=learnt, host=host
            )
            for message in reply.names:
                yield records.of(Name, message)
            more = reply.more and len(reply.names) > 0
            after = reply.names[-1].name if more else ""

    async def export(self) -> AsyncIterator[Name]:
        """Every name, as one stream: faster than `list` for many."""
        stream = self._controller._stream("ExportNames", wire.message("ExportNamesRequest"))
        try:
            async for batch in stream:
                for message in batch.names:
                    yield records.of(Name, message)
        finally:
            await stream.aclose()

    async def import_(
        self, names: Union[Iterable[Named], AsyncIterable[Named]], *, batch: int = 10_000
    ) -> Changed:
        """Adds or changes many names, `batch` of them a transaction.

        Raises `ImportStopped` at the first batch that is refused; those before it are committed.
        """
        if batch < 1:
            raise ValueError(f"batch is {batch}: give 1 or more")
        stream = self._controller._call("ImportNames")()
        committed = changed = unchanged = in_flight = 0

        async def answered() -> None:
            nonlocal committed, changed, unchanged, in_flight
            progress = await stream.read()
            if progress is wire.grpc.aio.EOF:
                # The status says why.
                code, details = await stream.code(), await stream.details()
                raise _Ended(code, details)
            committed, in_flight = progress.committed, in_flight - 1
            changed, unchanged = changed + progress.changed.changed, unchanged + progress.changed.unchanged

        try:
            async for some in _batches(names, batch):
                await stream.write(wire.message("NameBatch", names=some))
                in_flight += 1
                if in_flight == _AHEAD:
                    await answered()
            await stream.done_writing()
            while in_flight:
                await answered()
        except (wire.grpc.aio.AioRpcError, _Ended) as error:
            raise errors.of(error, self._controller.url, committed) from None
        except asyncio.InvalidStateError:
            # Writing to a stream that the controller has ended.
            ended = _Ended(await stream.code(), await stream.details())
            raise errors.of(ended, self._controller.url, committed) from None
        finally:
            stream.cancel()
        return Changed(changed, unchanged)


class _Ended(Exception):
    """A stream that ended before all was answered."""

    def __init__(self, code: Any, details: str) -> None:
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> Any:
        return self._code

    def details(self) -> str:
        return self._details


async def _batches(names: Any, size: int) -> AsyncIterator[list[Any]]:
    some: list[Any] = []
    if isinstance(names, AsyncIterable):
        async for name in names:
            some.append(_record(name))
            if len(some) == size:
                yield some
                some = []
    else:
        for name in names:
            some.append(_record(name))
            if len(some) == size:
                yield some
                some = []
    if some:
        yield some


class SwitchSet:
    """The switches of a controller: `controller.switches`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def list(self) -> Switches:
        """All switches, and those that wait to be accepted."""
        return records.of(Switches, await self._controller._ask("ListSwitches", "ListSwitchesRequest"))

    async def get(self, name: str) -> SwitchDetails:
        """One switch with its host ports, and what it counted: ports, and drops with their reasons. Raises `NotThere`."""
        return records.of(SwitchDetails, await self._controller._ask("GetSwitch", "GetSwitchRequest", name=name))

    async def add(self, name: str, *, tenants: Iterable[int] = ()) -> Changed:
        """Adds a switch that holds the names of these tenants; of all without."""
        return await self._controller._change("AddSwitch", "AddSwitchRequest", name=name, tenants=tenants)

    async def add_many(self, names: Iterable[str]) -> Changed:
        """Adds switches that hold all names, all in one transaction."""
        return await self._controller._change("AddSwitches", "AddSwitchesRequest", names=names)

    async def accept(self, names: Iterable[str] = ()) -> Changed:
        """Adds switches that attached and were refused because they had not been added; all of them if no names are given."""
        return await self._controller._change("AcceptSwitches", "AcceptSwitchesRequest", names=names)

    async def remove(self, name: str) -> Changed:
        """Removes a switch."""
        return await self._controller._change("RemoveSwitch", "RemoveSwitchRequest", name=name)

    async def verify(self, name: str) -> Verified:
        """Has a switch compute its digests again from its memory, beside the controller's."""
        return records.of(Verified, await self._controller._ask("VerifySwitch", "VerifySwitchRequest", name=name))

    async def log(self, name: str, filter: Optional[str] = None) -> LogState:
        """What a connected switch logs. With `filter` it logs by that until it starts again."""
        return await self._controller._log(name, filter)

    async def drain(self, name: str, *, undo: bool = False) -> Drained:
        """Takes all paths of others off a switch without losing a frame, or lets them lead through it again."""
        return records.of(
            Drained, await self._controller._ask("DrainSwitch", "DrainSwitchRequest", name=name, undo=undo)
        )


class HostSet:
    """The hosts of a controller: `controller.hosts`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def list(self) -> Hosts:
        """All hosts, what was seen at ports that learn, and what is wrong."""
        return records.of(Hosts, await self._controller._ask("ListHosts", "ListHostsRequest"))

    async def add(self, name: str, at: Port) -> Changed:
        """Adds a host at a port of a switch."""
        end = _end(at)
        return await self._controller._change("AddHost", "Host", name=name, switch=end.switch, port=end.port)

    async def add_many(self, hosts: Iterable[tuple[str, Port]]) -> Changed:
        """Adds hosts, all in one transaction."""
        ends = [(name, _end(at)) for name, at in hosts]
        given = [wire.message("Host", name=name, switch=end.switch, port=end.port) for name, end in ends]
        return await self._controller._change("AddHosts", "HostList", hosts=given)

    async def rename(self, name: str, to: str) -> Changed:
        """Gives a host another name; what is attached to it stays so."""
        return await self._controller._change("RenameHost", "RenameHostRequest", name=name, to=to)

    async def remove(self, name: str) -> Changed:
        """Removes a host that has no names."""
        return await self._controller._change("RemoveHost", "RemoveHostRequest", name=name)

    async def accept(self, names: Iterable[str] = ()) -> Changed:
        """Makes names of what was seen, where it was seen.

        Without names of all that ports and switches may have; names that are given are learnt whatever they may have.
        """
        return await self._controller._change("AcceptHosts", "AcceptHostsRequest", names=names)

    async def forget(self, name: str) -> Changed:
        """Removes all names that are learnt at a host."""
        return await self._controller._change("ForgetHost", "ForgetHostRequest", name=name)


class LinkSet:
    """The links of a controller: `controller.links`. A link is named by either end."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def list(self) -> Links:
        """All links, cables that were found, and what is wrong."""
        return records.of(Links, await self._controller._ask("ListLinks", "ListLinksRequest"))

    async def add(self, a: Port, b: Port, *, cost: int = 1, weight: int = 1) -> Changed:
        """Adds a link between two ports."""
        link = wire.message("Link", a=_end(a), b=_end(b), cost=cost, weight=weight, up=True)
        return records.of(Changed, await self._controller._send("AddLink", link))

    async def add_many(self, links: Iterable[tuple[Port, Port]], *, cost: int = 1, weight: int = 1) -> Changed:
        """Adds links of one cost and weight, all in one transaction."""
        given = [wire.message("Link", a=_end(a), b=_end(b), cost=cost, weight=weight, up=True) for a, b in links]
        return await self._controller._change("AddLinks", "LinkList", links=given)

    async def set(
        self, end: Port, *, cost: Optional[int] = None, weight: Optional[int] = None, up: Optional[bool] = None
    ) -> Changed:
        """Changes cost, weight or state."""
        given = {key: value for key, value in (("cost", cost), ("weight", weight), ("up", up)) if value is not None}
        if not given:
            raise ValueError("say what to change: cost, weight or up")
        return await self._controller._change("SetLink", "SetLinkRequest", end=_end(end), **given)

    async def remove(self, end: Port) -> Changed:
        """Removes a link."""
        return await self._controller._change("RemoveLink", "RemoveLinkRequest", end=_end(end))

    async def accept(self, *, cost: int = 1, weight: int = 1) -> Changed:
        """Adds all links that were found, with this cost and weight."""
        return await self._controller._change("AcceptLinks", "AcceptLinksRequest", cost=cost, weight=weight)

    async def drain(self, end: Port, *, undo: bool = False) -> Drained:
        """Takes all paths off a link without losing a frame, or takes it into use again."""
        reply = await self._controller._ask("DrainLink", "DrainLinkRequest", end=_end(end), undo=undo)
        return records.of(Drained, reply)


__all__ = [
    "BadRequest",
    "Changed",
    "Controller",
    "ControllerError",
    "Counters",
    "Credentials",
    "Drained",
    "DropCount",
    "End",
    "Event",
    "Hop",
    "Host",
    "Hosts",
    "ImportStopped",
    "Link",
    "Links",
    "LogState",
    "MemoryPart",
    "MemoryUse",
    "Name",
    "NotAllowed",
    "NotThere",
    "PendingSwitch",
    "PortCounters",
    "Rates",
    "Refused",
    "SeenHost",
    "Status",
    "Switch",
    "SwitchDetails",
    "Switches",
    "Traced",
    "Unreachable",
    "Verified",
    "VerifiedPart",
    "Way",
]
