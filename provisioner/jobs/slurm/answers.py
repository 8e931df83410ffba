"""What slurmrestd's answers say, whatever they are made of: versions, errors, refusals, or that it is no slurmrestd.

Nothing is believed of an answer that carries errors, whatever its HTTP status: slurmrestd says 200 to a node that it
does not know, and 500 to an update that it has made half of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Generic, Literal, TypeVar, cast

from provisioner.api.machinery.errors import Retryable
from provisioner.outbound.json_body import read_object
from provisioner.outbound.turns import Turn

T = TypeVar("T")

KNOWN_VERSIONS: Final = tuple(f"v0.0.{number}" for number in range(44, 37, -1))
"""The newest first: v0.0.38 came with Slurm 22.05, v0.0.42 with 24.11, v0.0.44 with 25.11."""
PERSON_SECONDS: Final = 60.0
STEPS_ONLY: Final = "FULL_STEPS_ONLY"

Act = Literal["update", "signal", "reserve", "unreserve"]
_PATH: Final = re.compile(
    r"/slurm/(?P<version>v[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})/"
    r"(?:(?P<update>node/\{node_name\})|(?P<signal>job/\{job_id\})"
    r"|(?P<reserve>reservation)|(?P<unreserve>reservation/\{reservation_name\}))/?"
)
_AUTHENTICATION: Final = frozenset({1007, 2002, 2010, *range(6000, 6009)})
"""Errors of the protocol and of the plugins for authentication (slurm_errno.h)."""
_OF_AUTHENTICATION: Final = re.compile(
    r"authenticat|invalid (?:auth|user|token|credential)|token (?:has )?expired|expired token|\bJWT\b|\bauth/", re.I
)
"""slurmrestd 25.11 answers a token that it does not take with HTTP 500 and text alone."""
_AUTHENTICATION_STATUS: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NETWORK_AUTHENTICATION_REQUIRED}
)
_ERRORS: Final = 4
_WORDS_LENGTH: Final = 200
_WRONG_SHAPE: Final = (TypeError, AttributeError, KeyError, ValueError, ArithmeticError, RecursionError)


class SlurmFailed(Retryable):
    """Slurm could not be asked, or did not do it. The message names the remedy."""


class SlurmNoAnswer(SlurmFailed):
    """slurmrestd does not answer, or not as it should: one more of these, and it may be given up."""


@dataclass(frozen=True)
class Dialect:
    """What one slurmrestd speaks."""

    version: str
    updates_nodes: bool
    signals_steps: bool
    reserves: bool = False
    """Makes, changes and deletes reservations: v0.0.43, of Slurm 25.05, is the first that does."""


@dataclass(frozen=True)
class Offer:
    """Of one version: whether it updates a node, signals a job's steps alone, makes or deletes a reservation."""

    version: str
    act: Act
    can: bool


@dataclass(frozen=True)
class SlurmResponse(Generic[T]):
    """`found`: what was kept of the list or object that was asked for, None if there is none."""

    status: int
    found: list[T] | None
    errors: tuple[Mapping[str, Any], ...]
    beginning: str

    @property
    def is_good(self) -> bool:
        return self.status == HTTPStatus.OK and not self.errors

    @property
    def is_refusal(self) -> bool:
        """Of the token, which says that it answers."""
        numbers = (error.get("error_number", error.get("errno", error.get("error_code"))) for error in self.errors)
        if self.status in _AUTHENTICATION_STATUS or any(
            isinstance(number, int) and number in _AUTHENTICATION for number in numbers
        ):
            return True
        return self.status >= HTTPStatus.BAD_REQUEST and bool(_OF_AUTHENTICATION.search(self.words))

    @property
    def says_unknown(self) -> bool:
        """What slurmrestd says of a node that it does not know: nothing, or, in 22.05, that its name is invalid."""
        if self.found or not self.errors:
            return False
        return all(
            error.get("error_number") == 0 or error.get("error") == "Invalid node name specified"
            for error in self.errors
        )

    @property
    def words(self) -> str:
        said = "; ".join(_words(error) for error in self.errors[:_ERRORS])
        return said or self.beginning or "no reason given"


def read_answer(
    status: int, parts: Iterable[bytes], key: str, keep: Callable[[str | None, Any], T], turn: Turn
) -> SlurmResponse[T]:
    """Raises: ValueError if it is no answer of slurmrestd and yet says that all is well; what `parts` and `turn` do."""
    head = bytearray()
    try:
        rest, found = read_object(_with_head(parts, head), key, keep, beside=("errors",), turn=turn)
        errors = rest.get("errors") or []
        if not isinstance(errors, list) or not all(isinstance(error, dict) for error in errors):
            raise ValueError("its errors are no list of objects")
    except _WRONG_SHAPE as error:
        if status == HTTPStatus.OK:
            raise ValueError(f"{error}"[:_WORDS_LENGTH]) from error
        found, errors = None, []
    return SlurmResponse(status, found, tuple(errors), head.decode(errors="replace").strip())


def read_offer(path: str | None, value: Any) -> Offer | None:
    """What one path of an OpenAPI document says; None if it is of no interest."""
    found = _PATH.fullmatch(path or "")
    if found is None:
        return None
    act = cast(Act, found.lastgroup)
    can = _signals_steps(value) if act == "signal" else ("delete" if act == "unreserve" else "post") in value
    return Offer(found["version"], act, can)


def choose_dialect(offers: Iterable[Offer | None], url: str) -> Dialect:
    """From the paths of an OpenAPI document. Raises: SlurmFailed if no version is spoken by both sides."""
    known = [offer for offer in offers if offer is not None]
    nodes = {offer.version for offer in known if offer.act == "update"}
    can = {(offer.version, offer.act) for offer in known if offer.can}
    for version in KNOWN_VERSIONS:
        if version in nodes:
            return Dialect(
                version,
                updates_nodes=(version, "update") in can,
                signals_steps=(version, "signal") in can,
                reserves=(version, "reserve") in can and (version, "unreserve") in can,
            )
    spoken = ", ".join(sorted(nodes)[:_ERRORS]) or "no version of the API for nodes"
    raise SlurmFailed(
        f"slurmrestd at {url} speaks {spoken}, this program {KNOWN_VERSIONS[-1]} to {KNOWN_VERSIONS[0]}: load the "
        "plugin of one of these in slurmrestd (-d)",
        after_seconds=PERSON_SECONDS,
    )


def _signals_steps(path: Any) -> bool:
    parameters = ((path or {}).get("delete") or {}).get("parameters") or ()
    return any(STEPS_ONLY in ((parameter.get("schema") or {}).get("enum") or ()) for parameter in parameters)


def _with_head(parts: Iterable[bytes], head: bytearray) -> Iterator[bytes]:
    for part in parts:
        head += part[: max(0, _WORDS_LENGTH - len(head))]
        yield part


def _words(error: Mapping[str, Any]) -> str:
    parts = (error.get("description"), error.get("error"))
    said = ": ".join(str(part)[:_WORDS_LENGTH] for part in parts if part and part != "No error")
    return said.encode(errors="replace").decode()
