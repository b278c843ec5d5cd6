"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import re
import stat
import sys
from typing import Callable, Optional, TypeVar

from .arrays import Path

T = TypeVar("T")

#: What leads to a file that this process has open already: to replace the file behind it would not reach who reads it.
_OPEN = re.compile(r"/dev/(?:(stdin|stdout|stderr)|fd/(\d+))|/proc/self/fd/(\d+)")


def read(path: Path, decode: Callable[[bytes], T]) -> T:
    """Decodes a file; what is wrong with it is said with its name."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return decode(data)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def write(path: Path, data: bytes, mode: int) -> None:
    """Replaces a plain file by this content when all of it is on the disk. The old one stays otherwise.

    Links are followed. A device, a pipe and what this process has open, such as /dev/stdout, are written to as they are. A
    file that is replaced keeps its permissions and its owner; where the owner cannot be kept, and for a new file, `mode` holds.
    """
    in_place = _in_place(os.fspath(path))
    if in_place is not None:
        with os.fdopen(in_place, "wb") as file:
            file.write(data)
        return
    path = os.path.realpath(path)
    try:
        before = os.stat(path)
    except FileNotFoundError:
        before = None
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if before is not None:
                _keep(file.fileno(), before)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _in_place(path: str) -> Optional[int]:
    """A descriptor of what is not to be replaced; none of a plain file, and of what does not exist."""
    found = _OPEN.fullmatch(path)
    if found:
        name, *numbers = found.groups()
        number = ("stdin", "stdout", "stderr").index(name) if name else int(numbers[0] or numbers[1])
        # What was printed before comes before.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return os.dup(number)
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    return None if stat.S_ISREG(kind) else os.open(path, os.O_WRONLY)


def _keep(descriptor: int, before: os.stat_result) -> None:
    """Gives a new file the owner and the permissions of the one that it replaces."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(descriptor, before.st_uid, before.st_gid)
        except PermissionError:
            # What another owner or group might do, this one is not to do.
            return
    os.fchmod(descriptor, before.st_mode & 0o777)
