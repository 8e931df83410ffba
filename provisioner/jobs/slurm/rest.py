"""slurmrestd: one request and its answer, in the newest version of its API that both sides speak.

Every failure is a SlurmFailed, which is Retryable: a person may correct a token at any moment, and then it works.
An answer is read within its call, as it comes: whoever sends what nobody can read has not answered.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import requests
import urllib3

from provisioner.api.machinery.values import Secret
from provisioner.jobs.slurm.answers import (
    PERSON_SECONDS,
    STEPS_ONLY,
    Dialect,
    SlurmFailed,
    SlurmNoAnswer,
    SlurmResponse,
    choose_dialect,
    read_answer,
    read_offer,
)
from provisioner.jobs.slurm.objects import (
    Bounds,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    read_job,
    read_node,
    read_reservation,
)
from provisioner.outbound.adapter import StreamedAdapter
from provisioner.outbound.bulkhead import NoRoom
from provisioner.outbound.deadline import TooLarge, TooSlow, bounded_call
from provisioner.outbound.sockets import read_parts
from provisioner.outbound.turns import Turn

T = TypeVar("T")
R = TypeVar("R")
Keep = Callable[[str | None, Any], T]

CONNECT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 20.0
CALL_SECONDS: Final = 20.0
"""For one request with its whole answer."""
MANY_SECONDS: Final = 60.0
"""The same, where the answer is about all nodes or all jobs."""
ANSWER_BYTES: Final = 1024 * 1024
DOCUMENT_BYTES: Final = 16 * 1024 * 1024
"""The OpenAPI document has a few MiB, more with each version that is loaded."""
MANY_BYTES: Final = 256 * 1024 * 1024
"""A job is about 10 KiB; MaxJobCount in slurm.conf is 10,000 unless it is set."""


@dataclass(frozen=True)
class SlurmAccess:
    """Where slurmrestd is, and who we are there. `source`: the Secret, for messages."""

    url: str
    username: str
    token: Secret
    source: str
    certificate: str | None = None


class SlurmRest:
    """One slurmrestd. `dialects` keeps, by URL, what was found out; that changes only with Slurm's own version.
    `refused` is called where it does not take the token. `around`: in it each request is made; it may raise NoRoom."""

    def __init__(
        self,
        access: SlurmAccess,
        dialects: MutableMapping[str, Dialect],
        *,
        refused: Callable[[], None] = lambda: None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._access = access
        self._dialects = dialects
        self._refused = refused
        self._around = around

    def node(self, name: str) -> SlurmNode | None:
        """The node; None if Slurm does not know it."""
        found = self._ask("GET", f"node/{name}", "nodes", _reader(read_node, Bounds().node), may_be_unknown=True)
        return found[0] if found else None

    def nodes(self) -> tuple[SlurmNode, ...]:
        """Every node that Slurm knows."""
        return tuple(self._ask("GET", "nodes", "nodes", _reader(read_node, Bounds().node), many=True))

    def jobs(self) -> tuple[SlurmJob, ...]:
        """Every job that Slurm remembers, those that are over for a while among them."""
        return tuple(self._ask("GET", "jobs", "jobs", _reader(read_job, Bounds().job), many=True))

    def update_node(self, name: str, state: str, reason: str | None) -> None:
        """Ask for a state. Look afterwards: an update that is refused may have been made in part."""
        dialect = self._dialect()
        if not dialect.updates_nodes:
            raise SlurmFailed(
                f"slurmrestd at {self._access.url} speaks only {dialect.version}, which cannot drain a node: update "
                "Slurm to 23.02 or newer, or drain and resume its nodes by scontrol",
                after_seconds=PERSON_SECONDS,
            )
        self._tell("POST", f"node/{name}", body={"state": [state]} | ({"reason": reason} if reason else {}))

    def comment_job(self, job: SlurmJob, comment: str) -> None:
        self._tell("POST", f"job/{job.id}", body={"admin_comment": comment})

    def cancel_job(self, job: SlurmJob) -> None:
        """End it as scancel does: SIGTERM, and SIGKILL after Slurm's KillWait."""
        self._tell("DELETE", f"job/{job.id}")

    def signal_job(self, job: SlurmJob, signal: str) -> bool:
        """Send a signal to its steps, as `scancel --signal` does; whether this slurmrestd can.

        Not to the batch script: one without a trap would end. The caller vouches for `signal`: slurmrestd takes a name
        that it does not know for a request to cancel.
        """
        if not self._dialect().signals_steps:
            return False
        self._tell("DELETE", f"job/{job.id}", query={"signal": signal, "flags": STEPS_ONLY})
        return True

    @property
    def reserves(self) -> bool:
        """Whether this slurmrestd makes, changes and deletes reservations; every one shows them."""
        return self._dialect().reserves

    def reservations(self) -> tuple[SlurmReservation, ...]:
        """Every reservation that Slurm has."""
        keep = _reader(read_reservation, Bounds().reservation)
        return tuple(self._ask("GET", "reservations", "reservations", keep, many=True))

    def set_reservation(self, body: Mapping[str, Any]) -> None:
        """Make the one that `body` names, or change what it says of it. Look afterwards."""
        self._tell("POST", "reservation", body=body)

    def delete_reservation(self, name: str) -> None:
        self._tell("DELETE", f"reservation/{name}")

    def _ask(
        self, method: str, path: str, key: str, keep: Keep[T], *, many: bool = False, may_be_unknown: bool = False
    ) -> list[T]:
        """What `keep` makes of the answer's list `key`. `many`: of an answer that may be larger and come later."""
        version = self._dialect().version
        what = f"{method} {path} ({version})"

        def judge(answer: SlurmResponse[T]) -> list[T]:
            if may_be_unknown and answer.says_unknown:
                return []
            if not answer.is_good:
                raise self._failed(what, answer, SlurmNoAnswer)
            return self._found(answer, key)

        seconds, most = (MANY_SECONDS, MANY_BYTES) if many else (CALL_SECONDS, ANSWER_BYTES)
        return self._send(method, f"/slurm/{version}/{path}", what, key, keep, judge, seconds=seconds, most=most)

    def _tell(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> None:
        """Have something done. That Slurm refuses it, in words of its own, says that it answers."""
        version = self._dialect().version
        what = f"{method} {path} ({version})"

        def judge(answer: SlurmResponse[None]) -> None:
            if not answer.is_good:
                raise self._failed(what, answer, SlurmFailed if answer.errors else SlurmNoAnswer)

        url = f"/slurm/{version}/{path}"
        self._send(method, url, what, "", lambda *_: None, judge, most=ANSWER_BYTES, params=query, json=body)

    def _dialect(self) -> Dialect:
        found = self._dialects.get(self._access.url)
        if found is None:

            def judge(answer: SlurmResponse[Any]) -> Dialect:
                if not answer.is_good:
                    raise self._failed("GET openapi", answer, SlurmNoAnswer)
                return choose_dialect(self._found(answer, "paths"), self._access.url)

            found = self._dialects[self._access.url] = self._send(
                "GET", "/openapi/v3", "GET openapi", "paths", read_offer, judge, most=DOCUMENT_BYTES
            )
        return found

    def _send(
        self,
        method: str,
        path: str,
        what: str,
        key: str,
        keep: Keep[T],
        judge: Callable[[SlurmResponse[T]], R],
        *,
        most: int,
        seconds: float | None = None,
        **more: Any,
    ) -> R:
        access = self._access
        headers = {"X-SLURM-USER-NAME": access.username, "X-SLURM-USER-TOKEN": access.token.reveal()}
        adapter = StreamedAdapter()
        with requests.Session() as session, tempfile.NamedTemporaryFile("w", suffix=".pem") as authority:
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            # Neither a proxy nor a .netrc of the environment has any business here.
            session.trust_env = False
            if access.certificate:
                authority.write(access.certificate)
                authority.flush()
            more |= {"headers": headers, "verify": authority.name if access.certificate else True}
            request = (method, access.url.rstrip("/") + path)
            try:
                with self._around():
                    answer = self._exchange(session, request, what, key, keep, seconds or CALL_SECONDS, most, more)
                    if answer.status == HTTPStatus.NOT_FOUND:
                        # Slurm was updated since: find out anew next time.
                        self._dialects.pop(access.url, None)
                    return judge(answer)
            except NoRoom as error:
                raise SlurmFailed(str(error), after_seconds=error.after_seconds) from error

    def _exchange(
        self,
        session: requests.Session,
        request: tuple[str, str],
        what: str,
        key: str,
        keep: Keep[T],
        seconds: float,
        most: int,
        more: Mapping[str, Any],
    ) -> SlurmResponse[T]:
        url, after = self._access.url, 5.0
        try:
            with bounded_call("slurmrestd", seconds=seconds, max_bytes=most) as call:
                response = session.request(
                    *request,
                    timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
                    allow_redirects=False,  # the token is for this address only
                    stream=True,
                    **more,
                )
                with closing(response):
                    return read_answer(response.status_code, read_parts(response.raw), key, keep, Turn(call.remaining))
        # UnicodeError, which is a ValueError: no header has such letters as the token has.
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError) as error:
            words = f"does not answer ({what}: {_cause(error)}): start it, or correct spec.jobs.slurm.url"
            raise SlurmNoAnswer(f"slurmrestd at {url} {words}", after_seconds=after) from error
        except ValueError as error:
            words = f"answered what cannot be read ({what}: {error}): is it slurmrestd?"
            raise SlurmNoAnswer(f"slurmrestd at {url} {words}", after_seconds=after) from error

    def _found(self, answer: SlurmResponse[T], key: str) -> list[T]:
        if answer.found is None:
            raise SlurmNoAnswer(f"{self._access.url} answered without {key}: is it slurmrestd?", after_seconds=5.0)
        return answer.found

    def _failed(self, what: str, answer: SlurmResponse[Any], otherwise: type[SlurmFailed]) -> SlurmFailed:
        access = self._access
        if answer.is_refusal:
            self._refused()
            return SlurmFailed(
                f"slurmrestd at {access.url} refused user {access.username!r} ({what}: {answer.words}): put a token of "
                f"one of Slurm's operators into Secret {access.source} (scontrol token username=… lifespan=…)",
                after_seconds=PERSON_SECONDS,
            )
        return otherwise(
            f"slurmrestd at {access.url} did not do it ({what}, HTTP {answer.status}): {answer.words}",
            after_seconds=5.0,
        )


def _reader(read: Callable[[Mapping[str, Any]], T], bound: Callable[[T], T]) -> Keep[T]:
    def keep(name: str | None, item: Any) -> T:
        if name is not None or not isinstance(item, dict):
            raise ValueError("its list holds something else than objects")
        return bound(read(item))

    return keep


def _cause(error: BaseException) -> str:
    """In words that are the same every time."""
    if isinstance(error, TooSlow):
        sends = "though it sends some" if error.received else "and it sends nothing"
        return f"no whole answer within {error.allowed_seconds:g} s, {sends}"
    if isinstance(error, TooLarge):
        return str(error)
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate was not accepted"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, requests.exceptions.Timeout | urllib3.exceptions.TimeoutError):
        return "no answer in time"
    return "no connection"
