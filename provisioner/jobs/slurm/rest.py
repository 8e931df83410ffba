"""slurmrestd: one request and its answer, in the newest version of its API that both sides speak.

Every failure is a SlurmFailed, which is Retryable: a person may correct a token at any moment, and then it works.
Nothing is believed of an answer that carries errors, whatever its HTTP status: slurmrestd says 200 to a node that it
does not know, and 500 to an update that it has made half of.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import requests

from provisioner.api.errors import Retryable
from provisioner.api.values import Secret
from provisioner.jobs.slurm.objects import SlurmJob, SlurmNode, read_job, read_node
from provisioner.outbound.adapter import BoundedAdapter
from provisioner.outbound.bulkhead import NoRoom
from provisioner.outbound.deadline import TooLarge, TooSlow
from provisioner.outbound.json_body import read_object

T = TypeVar("T")

CONNECT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 20.0
CALL_SECONDS: Final = 20.0
"""For one request with its whole answer."""
MANY_SECONDS: Final = 60.0
"""The same, where the answer is about all nodes or all jobs."""
ANSWER_BYTES: Final = 32 * 1024 * 1024
"""The OpenAPI document is the largest, with a few MiB."""
MANY_BYTES: Final = 256 * 1024 * 1024
"""A job is about 10 KiB; MaxJobCount in slurm.conf is 10,000 unless it is set."""
KNOWN_VERSIONS: Final = tuple(f"v0.0.{number}" for number in range(44, 37, -1))
"""The newest first: v0.0.38 came with Slurm 22.05, v0.0.42 with 24.11, v0.0.44 with 25.11."""

_PATH_OF_NODE: Final = re.compile(r"/slurm/(v\d+\.\d+\.\d+)/node/\{node_name\}/?")
_AUTHENTICATION: Final = frozenset({1007, 2002, 2010})
_AUTHENTICATION_STATUS: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NETWORK_AUTHENTICATION_REQUIRED}
)
_STEPS_ONLY: Final = "FULL_STEPS_ONLY"
_PERSON_SECONDS: Final = 60.0


class SlurmFailed(Retryable):
    """Slurm could not be asked, or did not do it. The message names the remedy."""


@dataclass(frozen=True)
class SlurmAccess:
    """Where slurmrestd is, and who we are there. `source`: the Secret, for messages."""

    url: str
    username: str
    token: Secret
    source: str
    certificate: str | None = None


@dataclass(frozen=True)
class Dialect:
    """What one slurmrestd speaks."""

    version: str
    updates_nodes: bool
    signals_steps: bool


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
        answer = self._ask("GET", f"node/{name}", tolerate_unknown=True)
        bodies = answer.get("nodes") or []
        return read_node(bodies[0]) if bodies else None

    def nodes(self) -> tuple[SlurmNode, ...]:
        """Every node that Slurm knows."""
        return self._all("nodes", read_node)

    def jobs(self) -> tuple[SlurmJob, ...]:
        """Every job that Slurm remembers, those that are over for a while among them."""
        return self._all("jobs", read_job)

    def update_node(self, name: str, state: str, reason: str | None) -> None:
        """Ask for a state. Look afterwards: an update that is refused may have been made in part."""
        dialect = self._dialect()
        if not dialect.updates_nodes:
            raise SlurmFailed(
                f"slurmrestd at {self._access.url} speaks only {dialect.version}, which cannot drain a node: update "
                "Slurm to 23.02 or newer, or drain and resume its nodes by scontrol",
                after_seconds=_PERSON_SECONDS,
            )
        self._ask("POST", f"node/{name}", body={"state": [state]} | ({"reason": reason} if reason else {}))

    def comment_job(self, job: SlurmJob, comment: str) -> None:
        self._ask("POST", f"job/{job.id}", body={"admin_comment": comment})

    def cancel_job(self, job: SlurmJob) -> None:
        """End it as scancel does: SIGTERM, and SIGKILL after Slurm's KillWait."""
        self._ask("DELETE", f"job/{job.id}")

    def signal_job(self, job: SlurmJob, signal: str) -> bool:
        """Send a signal to its steps, as `scancel --signal` does; whether this slurmrestd can.

        Not to the batch script: one without a trap would end. The caller vouches for `signal`: slurmrestd takes a name
        that it does not know for a request to cancel.
        """
        if not self._dialect().signals_steps:
            return False
        self._ask("DELETE", f"job/{job.id}", query={"signal": signal, "flags": _STEPS_ONLY})
        return True

    def _all(self, what: str, read: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
        """What `read` makes of each of the answer's list `what`; the rest of thousands of them is not kept."""
        found: list[T | None] | None = None

        def parse(body: bytes) -> dict[str, Any]:
            nonlocal found
            answer, found = read_object(body, what, lambda item: read(item) if isinstance(item, dict) else None)
            return answer

        self._ask("GET", what, parse=parse)
        if found is None:
            raise SlurmFailed(f"{self._access.url} answered without {what}: is it slurmrestd?", after_seconds=5.0)
        return tuple(each for each in found if each is not None)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        tolerate_unknown: bool = False,
        parse: Callable[[bytes], Any] | None = None,
    ) -> dict[str, Any]:
        """The answer's object. `parse`: for one about many, which may be larger and come later."""
        version = self._dialect().version
        what = f"{method} {path} ({version})"
        response = self._send(method, f"/slurm/{version}/{path}", what, body, query, many=parse is not None)
        if response.status_code == HTTPStatus.NOT_FOUND:
            # Slurm was updated since: find out anew next time.
            self._dialects.pop(self._access.url, None)
        answer = _json(response, parse or _parse)
        errors = [error for error in answer.get("errors") or [] if isinstance(error, dict)]
        if tolerate_unknown and errors and not answer.get("nodes") and all(_says_unknown(error) for error in errors):
            return answer
        if errors or response.status_code != HTTPStatus.OK:
            raise self._failed(what, response, errors)
        return answer

    def _dialect(self) -> Dialect:
        found = self._dialects.get(self._access.url)
        if found is None:
            what = "GET openapi"
            response = self._send("GET", "/openapi/v3", what)
            answer = _json(response, _parse)
            if response.status_code != HTTPStatus.OK:
                raise self._failed(what, response, [e for e in answer.get("errors") or [] if isinstance(e, dict)])
            found = self._dialects[self._access.url] = choose_dialect(answer.get("paths") or {}, self._access.url)
        return found

    def _send(
        self,
        method: str,
        path: str,
        what: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        *,
        many: bool = False,
    ) -> requests.Response:
        access = self._access
        headers = {"X-SLURM-USER-NAME": access.username, "X-SLURM-USER-TOKEN": access.token.reveal()}
        adapter = BoundedAdapter(
            "slurmrestd",
            seconds=MANY_SECONDS if many else CALL_SECONDS,
            max_bytes=MANY_BYTES if many else ANSWER_BYTES,
            redirects=True,  # an answer as any other: it is not followed
        )
        with requests.Session() as session, tempfile.NamedTemporaryFile("w", suffix=".pem") as authority:
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            # Neither a proxy nor a .netrc of the environment has any business here.
            session.trust_env = False
            if access.certificate:
                authority.write(access.certificate)
                authority.flush()
            try:
                with self._around():
                    return self._request(
                        session,
                        what,
                        method,
                        access.url.rstrip("/") + path,
                        params=query,
                        json=body,
                        headers=headers,
                        verify=authority.name if access.certificate else True,
                    )
            except NoRoom as error:
                raise SlurmFailed(str(error), after_seconds=error.after_seconds) from error

    def _request(self, session: requests.Session, what: str, method: str, url: str, **more: Any) -> requests.Response:
        try:
            return session.request(
                method,
                url,
                timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
                allow_redirects=False,  # the token is for this address only
                **more,
            )
        except (requests.RequestException, OSError, UnicodeError) as error:  # UnicodeError: no token has such letters
            raise SlurmFailed(
                f"slurmrestd at {self._access.url} does not answer ({what}: {_cause(error)}): start it, or correct "
                "spec.jobs.slurm.url",
                after_seconds=5.0,
            ) from error

    def _failed(self, what: str, response: requests.Response, errors: list[dict[str, Any]]) -> SlurmFailed:
        access = self._access
        said = "; ".join(_words(error) for error in errors) or _beginning(response) or "no reason given"
        if _is_refusal(response, errors):
            self._refused()
            return SlurmFailed(
                f"slurmrestd at {access.url} refused user {access.username!r} ({what}: {said}): put a token of one of "
                f"Slurm's operators into Secret {access.source} (scontrol token username=… lifespan=…)",
                after_seconds=_PERSON_SECONDS,
            )
        return SlurmFailed(
            f"slurmrestd at {access.url} did not do it ({what}, HTTP {response.status_code}): {said}", after_seconds=5.0
        )


def choose_dialect(paths: Mapping[str, Any], url: str) -> Dialect:
    """From the paths of an OpenAPI document. Raises: SlurmFailed if no version is spoken by both sides."""
    offered = {found.group(1): path for path in paths if (found := _PATH_OF_NODE.fullmatch(path))}
    for version in KNOWN_VERSIONS:
        if version in offered:
            signals = any(
                _STEPS_ONLY in ((parameter.get("schema") or {}).get("enum") or ())
                for path in (f"/slurm/{version}/job/{{job_id}}", f"/slurm/{version}/job/{{job_id}}/")
                for parameter in ((paths.get(path) or {}).get("delete") or {}).get("parameters") or ()
            )
            return Dialect(version, "post" in paths[offered[version]], signals)
    raise SlurmFailed(
        f"slurmrestd at {url} speaks {', '.join(sorted(offered)) or 'no version of the API for nodes'}, this program "
        f"{KNOWN_VERSIONS[-1]} to {KNOWN_VERSIONS[0]}: load the plugin of one of these in slurmrestd (-d)",
        after_seconds=_PERSON_SECONDS,
    )


def _is_refusal(response: requests.Response, errors: list[dict[str, Any]]) -> bool:
    numbers = {error.get("error_number", error.get("errno", error.get("error_code"))) for error in errors}
    return response.status_code in _AUTHENTICATION_STATUS or not _AUTHENTICATION.isdisjoint(numbers)


def _says_unknown(error: Mapping[str, Any]) -> bool:
    """What slurmrestd says of a node that it does not know: nothing, or, in 22.05, that its name is invalid."""
    return error.get("error_number") == 0 or error.get("error") == "Invalid node name specified"


def _beginning(response: requests.Response) -> str:
    # Not `text`, which guesses the encoding from all of it: seconds of a processor, of an answer made for that.
    return response.content[:200].decode(errors="replace").strip()


def _json(response: requests.Response, parse: Callable[[bytes], Any]) -> dict[str, Any]:
    try:
        answer = parse(response.content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _parse(body: bytes) -> Any:
    # The name of a job may be any bytes, and must not make a whole answer unreadable.
    return json.loads(body.decode(errors="surrogateescape"))


def _words(error: Mapping[str, Any]) -> str:
    parts = (error.get("description"), error.get("error"))
    return ": ".join(str(part) for part in parts if part and part != "No error").encode(errors="replace").decode()


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
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    return "no connection"
