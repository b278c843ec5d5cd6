"""Our certificate, as the command `fibula` finds it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

_PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Credentials:
    """PEM files: a certificate, its private key, and the authorities that we trust."""

    cert: bytes
    key: bytes
    ca: bytes

    @classmethod
    def load(
        cls,
        directory: Optional[_PathLike] = None,
        *,
        cert: Optional[_PathLike] = None,
        key: Optional[_PathLike] = None,
        ca: Optional[_PathLike] = None,
    ) -> Credentials:
        """Reads cert.pem, key.pem and ca.pem of a directory, as `fibula pki issue` makes it, or other files instead."""

        def content(given: Optional[_PathLike], name: str) -> bytes:
            if given is None and directory is None:
                raise ValueError(f"no {name}: give a directory, or cert, key and ca")
            return Path(given if given is not None else Path(directory or "") / name).read_bytes()

        return cls(content(cert, "cert.pem"), content(key, "key.pem"), content(ca, "ca.pem"))

    @classmethod
    def default(cls) -> Optional[Credentials]:
        """Those that the command takes: FIBULA_TLS, FIBULA_CERT, FIBULA_KEY and FIBULA_CA, or ~/.config/fibula/tls."""

        def variable(name: str) -> Optional[str]:
            return os.environ.get(name) or None

        config = variable("XDG_CONFIG_HOME") or os.path.join(variable("HOME") or "/etc", ".config")
        usual = Path(config) / "fibula" / "tls"
        directory = variable("FIBULA_TLS") or (str(usual) if (usual / "cert.pem").exists() else None)
        cert, key, ca = variable("FIBULA_CERT"), variable("FIBULA_KEY"), variable("FIBULA_CA")
        if directory is None and cert is None and key is None and ca is None:
            return None
        return cls.load(directory, cert=cert, key=key, ca=ca)
