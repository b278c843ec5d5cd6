"""The certificate that a server shows: its authority, its host and that its holder is a controller are checked before a request.

grpcio does not tell a client the certificate of its server. So a connection of the standard library reads and checks it first,
and the channel then trusts this one certificate and no other: a server that answers holds what was checked.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Any

from .credentials import Credentials
from .errors import Unreachable, no_answer

#: As of crates/api/src/identity.rs.
_SCHEME = "fibula://"
_CONTROLLER = _SCHEME + "controller/"


async def certificate_of(url: str, target: str, credentials: Credentials, timeout: float) -> bytes:
    """The certificate in PEM that the controller at HOST:PORT shows.

    Raises `Unreachable` if no server answers there, or one that is not trusted or is not a controller, and `ValueError` for
    credentials that cannot be read.
    """
    host, _, port = target.rpartition(":")
    context = _context(credentials)
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(host.strip("[]"), int(port), ssl=context), timeout
        )
    except (OSError, asyncio.TimeoutError) as error:
        reason = str(error) or f"no answer within {timeout} s"
        raise Unreachable(no_answer(url, reason), "UNAVAILABLE") from None
    shown: Any = writer.get_extra_info("ssl_object")
    names, certificate = shown.getpeercert().get("subjectAltName", ()), shown.getpeercert(True)
    # Nothing is asked on this connection. It is closed in the next round of the loop.
    writer.transport.abort()
    await asyncio.sleep(0)
    ours = [name for kind, name in names if kind == "URI" and name.startswith(_SCHEME)]
    if len(ours) != 1 or not ours[0].startswith(_CONTROLLER):
        reason = "its certificate is not that of a controller; another server answers there, or the address is wrong"
        raise Unreachable(no_answer(url, reason), "UNAVAILABLE")
    return ssl.DER_cert_to_PEM_cert(certificate).encode()


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    try:
        # Comments in other alphabets are left out.
        context.load_verify_locations(cadata=credentials.ca.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"ca.pem has no certificate of an authority that can be read: {error}") from None
    # `ssl` takes a certificate of ours from files alone. These are in memory, and gone when they are closed.
    cert, key = (os.memfd_create(name) for name in ("cert", "key"))
    try:
        for file, content in ((cert, credentials.cert), (key, credentials.key)):
            with os.fdopen(file, "wb", closefd=False) as writer:
                writer.write(content)
        context.load_cert_chain(f"/proc/self/fd/{cert}", f"/proc/self/fd/{key}")
    except ssl.SSLError as error:
        raise ValueError(f"cert.pem and key.pem are not a certificate and its key, unencrypted: {error}") from None
    finally:
        os.close(cert)
        os.close(key)
    return context
