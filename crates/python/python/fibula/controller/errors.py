"""What a controller refuses, in its own words."""

from __future__ import annotations

from typing import Any, Optional


class ControllerError(Exception):
    """A request that failed. Its text is the controller's sentence; `code` is the gRPC status, such as "NOT_FOUND".

    A refused request changed nothing.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class BadRequest(ControllerError, ValueError):
    """Something in the request is not valid: a name, an address, a cost."""


class NotThere(ControllerError, LookupError):
    """What was named does not exist."""


class Refused(ControllerError):
    """It exists already, is still in use, or would exceed a limit."""


class NotAllowed(ControllerError, PermissionError):
    """The certificate's role does not allow it, or there is none."""


class Unreachable(ControllerError, ConnectionError):
    """No controller answers, or the connection broke."""


class ImportStopped(ControllerError):
    """An import in which a batch was refused. The batches before are committed: `committed` names."""

    def __init__(self, message: str, code: str, committed: int) -> None:
        super().__init__(f"{message} (the first {committed} names were imported)", code)
        self.committed = committed


_BY_CODE: dict[str, type[ControllerError]] = {
    "INVALID_ARGUMENT": BadRequest,
    "OUT_OF_RANGE": BadRequest,
    "DATA_LOSS": BadRequest,
    "NOT_FOUND": NotThere,
    "ALREADY_EXISTS": Refused,
    "FAILED_PRECONDITION": Refused,
    "RESOURCE_EXHAUSTED": Refused,
    "ABORTED": Refused,
    "PERMISSION_DENIED": NotAllowed,
    "UNAUTHENTICATED": NotAllowed,
    "UNAVAILABLE": Unreachable,
    "DEADLINE_EXCEEDED": Unreachable,
}


def no_answer(at: str, reason: str) -> str:
    """The message if no controller is reached."""
    return f"no controller answers at {at}; is `fibula controller` running there? ({reason})"


def of(error: Any, at: str, committed: Optional[int] = None) -> ControllerError:
    """The exception for a failed call of grpcio."""
    code, details = error.code().name, error.details() or "no reason given"
    if code == "UNAVAILABLE" and "onnect" in details:
        details = no_answer(at, details)
    elif code == "DEADLINE_EXCEEDED":
        details = f"{at} did not answer in time: give a longer timeout, or check its state"
    if committed is not None:
        return ImportStopped(details, code, committed)
    return _BY_CODE.get(code, ControllerError)(details, code)
