"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from typing import Callable, TypeVar

from .arrays import Path

T = TypeVar("T")


def read(path: Path, decode: Callable[[bytes], T]) -> T:
    """Decodes a file; what is wrong with it is said with its name."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return decode(data)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def write(path: Path, data: bytes, mode: int) -> None:
    """Replaces a file by this content when all of it is on the disk. The old one stays otherwise."""
    path = os.path.realpath(path)
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
