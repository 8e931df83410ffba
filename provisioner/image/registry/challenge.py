"""What a registry answers to who is not known to it: `WWW-Authenticate`, read and judged. Pure.

Source: RFC 9110, 11.6.1; CNCF Distribution, "Token Authentication Specification".
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from provisioner.api.machinery.errors import Refused
from provisioner.image.registry.reference import Repository

_MAX_LENGTH: Final = 4096
_PARAMETER: Final = re.compile(r'\s*,?\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')
_SCHEME: Final = re.compile(r"\s*,?\s*([A-Za-z][A-Za-z0-9-]*)(?=\s+[A-Za-z0-9_-]+\s*=|\s*(?:,|$))")
_SCOPE: Final = re.compile(r"[a-z]+(,[a-z]+)*")


@dataclass(frozen=True)
class Bearer:
    """Where a token is to be had, and for what."""

    realm: str
    service: str | None
    scope: str


@dataclass(frozen=True)
class Basic:
    """It takes name and password themselves."""


def parse_challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Scheme (lower case) and parameters of each challenge; what cannot be read ends the list."""
    found: list[tuple[str, dict[str, str]]] = []
    at, header = 0, header[:_MAX_LENGTH]
    while scheme := _SCHEME.match(header, at):
        at, parameters = scheme.end(), dict[str, str]()
        while parameter := _PARAMETER.match(header, at):
            at = parameter.end()
            quoted, plain = parameter[2], parameter[3]
            parameters[parameter[1].lower()] = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        found.append((scheme[1].lower(), parameters))
    return found


def choose_challenge(
    header: str, repository: Repository, *, actions: str, plain_http: bool, token_hosts: Collection[str] = ()
) -> Bearer | Basic:
    """The challenge to answer: Bearer before Basic.

    actions: what is asked for, where the registry does not say (`pull`). token_hosts: hosts beside the registry's own
    that may be given the site's credentials.
    Raises: Refused if there is none that can be answered, or the realm is one that must not be trusted.
    """
    challenges = parse_challenges(header)
    for scheme, parameters in challenges:
        if scheme == "bearer" and "realm" in parameters:
            realm = _trusted(parameters["realm"], repository, plain_http, token_hosts)
            return Bearer(realm, parameters.get("service"), _scope(parameters.get("scope", ""), repository, actions))
    if any(scheme == "basic" for scheme, _ in challenges):
        return Basic()
    raise Refused(
        f"registry {repository.host} asks for {header[:200]!r}, not for Basic or a Bearer token",
        hint="is it a registry of the OCI distribution specification?",
    )


def _trusted(realm: str, repository: Repository, plain_http: bool, token_hosts: Collection[str]) -> str:
    """A registry that names another host as its realm would be given what opens this one, at that host."""
    try:
        parts = urlsplit(realm)
        hostname = (parts.hostname or "").lower()
        parts.port  # noqa: B018 - raises ValueError for a port that is none
    except ValueError:
        hostname, parts = "", urlsplit("")
    if parts.scheme != "https" and not (plain_http and parts.scheme == "http"):
        raise Refused(
            f"registry {repository.host} has its tokens made at {realm[:200]!r}, expected an https:// address",
            hint="correct the registry's auth.token.realm",
        )
    if parts.username is not None or hostname not in {repository.hostname, *(host.lower() for host in token_hosts)}:
        raise Refused(
            f"registry {repository.host} has its tokens made at another host, {hostname or realm[:200]!r}, "
            "which is given no credentials",
            hint=f"if that is right, say so: --registry-token-host {hostname or 'HOST'}",
        )
    return realm


def _scope(told: str, repository: Repository, actions: str) -> str:
    """The scope that was told, if it is one of this repository; else what is needed."""
    prefix = f"repository:{repository.name}:"
    if told.startswith(prefix) and _SCOPE.fullmatch(told.removeprefix(prefix)):
        return told
    return prefix + actions
