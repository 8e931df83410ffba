"""The exception tree of the project.

ProvisionerError
├── Retryable      the same call may succeed later; carries `after_seconds`
│   └── Conflict   somebody else wrote the object first; read it again
└── NeedsHuman     nothing changes until a person acts; carries `hint`, the remedy
    ├── NotFound   an object that was named does not exist
    └── Refused    the input or the caller is not acceptable
        └── Forbidden  the caller lacks a right

Messages say object, observed and expected; `hint` says the remedy.
"""

from __future__ import annotations


class ProvisionerError(Exception):
    """Base of every error that this project raises on purpose."""


class Retryable(ProvisionerError):
    """The same call may succeed in `after_seconds`."""

    def __init__(self, message: str, *, after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class Conflict(Retryable):
    """Somebody else wrote the object since it was read (HTTP 409)."""


class NeedsHuman(ProvisionerError):
    """Nothing changes until a person does what `hint` says."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.hint}"


class NotFound(NeedsHuman):
    """An object that was named does not exist (HTTP 404)."""


class Refused(NeedsHuman):
    """The input or the caller is not acceptable (HTTP 400, 401, 422)."""


class Forbidden(Refused):
    """The caller lacks a right, or a policy forbids it (HTTP 403). What it is about need not even exist."""
