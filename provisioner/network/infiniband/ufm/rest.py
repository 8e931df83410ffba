"""UFM: one request and its answer.

Every failure is Retryable: a person may correct a password at any moment, and then it works.
Source: NVIDIA, "UFM Enterprise REST API Guide" 6.15 to 6.22, "PKey GUIDs Rest API".
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal

import requests

from provisioner.api.machinery.codec import read_foreign_json
from provisioner.api.machinery.errors import Retryable
from provisioner.api.machinery.values import Secret
from provisioner.api.network.infiniband_rules import DEFAULT_PKEY
from provisioner.outbound.adapter import BoundedAdapter

CONNECT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 20.0
CALL_SECONDS: Final = 30.0
ANSWER_BYTES: Final = 16 * 1024 * 1024
"""A member is about 80 bytes: 50,000 ports in two partitions each, and the default one."""
PERSON_SECONDS: Final = 30.0
GUIDS_PER_REQUEST: Final = 200
"""GUIDs to be removed stand in the URL, 17 characters each."""
_ROOT: Final = "/ufmRest/resources/pkeys"
_GUID: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{16})")
_PKEY: Final = re.compile(r"0x[0-9a-fA-F]{1,4}")
_WORDS: Final = 200

Membership = Literal["full", "limited"]


class UfmFailed(Retryable):
    """UFM did not do what it was asked for, or said what cannot be read."""


class UfmNoAnswer(UfmFailed):
    """UFM did not answer, or not as UFM: a failure of the backend."""


@dataclass(frozen=True, kw_only=True)
class UfmAccess:
    """Where the UFM is, and who we are there. `source`: the Secret, for messages."""

    url: str
    username: str
    password: Secret
    source: str
    certificate: str | None = None


@dataclass(frozen=True, kw_only=True)
class UfmPartition:
    """A partition as UFM has it. `membership`: what it makes of all ports, which it says of the default one alone."""

    pkey: int
    members: Mapping[str, Membership]
    membership: Membership | None = None


class UfmRest:
    """One UFM. `around`: in it each request is made. `refused` is called where it does not take the password."""

    def __init__(
        self,
        access: UfmAccess,
        *,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._access = access
        self._around = around
        self._refused = refused

    def partitions(self) -> tuple[UfmPartition, ...]:
        """Every partition with its members. Raises: UfmFailed."""
        answer = self._send("GET", _ROOT, params={"guids_data": "true"})
        try:
            return read_partitions(read_foreign_json(answer))
        except (ValueError, RecursionError) as error:
            raise UfmNoAnswer(
                f"UFM at {self._access.url} answered what cannot be read (GET pkeys: {error}): is it UFM?",
                after_seconds=5.0,
            ) from error

    def add(self, pkey: int, guids: Iterable[str], *, ip_over_ib: bool) -> None:
        """Make the ports full members; the partition is made with the first ones. Raises: UfmFailed."""
        for part in _parts(guids):
            body = {
                "pkey": _pkey(pkey),
                "guids": [guid.removeprefix("0x") for guid in part],
                "membership": "full",
                "index0": False,
                "ip_over_ib": ip_over_ib,
            }
            self._send("POST", _ROOT, json=body)

    def remove(self, pkey: int, guids: Iterable[str]) -> None:
        """Take the ports out of the partition. Raises: UfmFailed."""
        for part in _parts(guids):
            names = ",".join(guid.removeprefix("0x") for guid in part)
            self._send("DELETE", f"{_ROOT}/{_pkey(pkey)}/guids/{names}")

    def delete(self, pkey: int) -> None:
        """Raises: UfmFailed; that there is no such partition is fine."""
        self._send("DELETE", f"{_ROOT}/{_pkey(pkey)}", may_be_absent=True)

    def _send(self, method: str, path: str, *, may_be_absent: bool = False, **more: Any) -> str:
        """The body of the answer."""
        access, what = self._access, f"{method} {path.removeprefix('/ufmRest/resources/').partition('/guids/')[0]}"
        adapter = BoundedAdapter(f"UFM at {access.url}", seconds=CALL_SECONDS, max_bytes=ANSWER_BYTES)
        with requests.Session() as session, tempfile.NamedTemporaryFile("w", suffix=".pem") as authority:
            session.mount("https://", adapter)
            session.mount("http://", adapter)
            # Neither a proxy nor a .netrc of the environment has any business here.
            session.trust_env = False
            if access.certificate:
                authority.write(access.certificate)
                authority.flush()
            with self._around():
                try:
                    response = session.request(
                        method,
                        access.url.rstrip("/") + path,
                        headers={"Authorization": f"Basic {_basic(access)}"},
                        timeout=(CONNECT_SECONDS, SILENCE_SECONDS),
                        allow_redirects=False,
                        verify=authority.name if access.certificate else True,
                        **more,
                    )
                except (requests.RequestException, OSError) as error:
                    raise UfmNoAnswer(
                        f"UFM at {access.url} does not answer ({what}: {_cause(error)}): start it, or correct spec.ufm",
                        after_seconds=5.0,
                    ) from error
                return self._judge(response, what, may_be_absent=may_be_absent)

    def _judge(self, response: requests.Response, what: str, *, may_be_absent: bool) -> str:
        access, status = self._access, response.status_code
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            self._refused()
            raise UfmFailed(
                f"UFM at {access.url} refused user {access.username!r} ({what}): put the name and password of one of "
                f"its administrators into Secret {access.source}",
                after_seconds=PERSON_SECONDS,
            )
        text = response.content.decode(errors="replace")
        if status == HTTPStatus.NOT_FOUND and may_be_absent:
            return text
        if not 200 <= status < 300:
            kind = UfmNoAnswer if status >= 500 else UfmFailed
            raise kind(
                f"UFM at {access.url} did not do it ({what}, HTTP {status}): {_printable(text)}", after_seconds=5.0
            )
        return text


def read_partitions(answer: Any) -> tuple[UfmPartition, ...]:
    """Of `GET pkeys?guids_data=true`: an object by P_Key. Raises: ValueError for anything else."""
    if not isinstance(answer, dict):
        raise ValueError("no object of partitions")
    return tuple(_partition(name, entry) for name, entry in sorted(answer.items()))


def _partition(name: str, entry: Any) -> UfmPartition:
    if not _PKEY.fullmatch(name) or not isinstance(entry, dict):
        raise ValueError(f"no partition: {_printable(name)!r}")
    guids = entry.get("guids")
    if guids is not None and not isinstance(guids, list):
        raise ValueError(f"members of {name} that are no list")
    membership = entry.get("membership")
    return UfmPartition(
        pkey=int(name, 16) & DEFAULT_PKEY,
        members=dict(_member(each, name) for each in guids or ()),
        membership=None if membership is None else _membership(membership, name),
    )


def _member(entry: Any, name: str) -> tuple[str, Membership]:
    guid = _GUID.fullmatch(str(entry.get("guid"))) if isinstance(entry, dict) else None
    if guid is None:
        raise ValueError(f"a member of {name} without a GUID")
    return f"0x{guid[1].lower()}", _membership(entry.get("membership"), name)


def _membership(value: Any, name: str) -> Membership:
    if value == "full":
        return "full"
    if value == "limited":
        return "limited"
    raise ValueError(f"a membership of {name} that is neither full nor limited")


def _basic(access: UfmAccess) -> str:
    """RFC 7617, in UTF-8: a password may have any letters."""
    return base64.b64encode(f"{access.username}:{access.password.reveal()}".encode()).decode()


def _parts(guids: Iterable[str]) -> Iterable[tuple[str, ...]]:
    every = tuple(guids)
    return (every[at : at + GUIDS_PER_REQUEST] for at in range(0, len(every), GUIDS_PER_REQUEST))


def _pkey(pkey: int) -> str:
    return f"0x{pkey:x}"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text[:_WORDS]).strip()


def _cause(error: BaseException) -> str:
    """In words that are the same every time."""
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate was not accepted"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, requests.exceptions.Timeout):
        return "no whole answer in time"
    if isinstance(error, requests.exceptions.TooManyRedirects):
        return "it sends us elsewhere"
    return "no connection, or an answer without end"
