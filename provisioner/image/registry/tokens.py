"""Who calls: the Authorization header that a registry gets, once it has asked for one.

Source: CNCF Distribution, "Token Authentication Specification" and "OAuth2 Token Authentication".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlencode

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Secret
from provisioner.image.registry.access import RegistryAccess
from provisioner.image.registry.challenge import Basic, Bearer, choose_challenge

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")
_CLIENT: Final = "provisioner"

Fetch = Callable[[str, str, Mapping[str, str], bytes | None], bytes]
"""Method, URL, headers and body of one call, and the answer's body."""


class TokenSource:
    """For one repository. Nothing is said before the registry has asked."""

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self.header: Secret | None = None

    def answer(self, challenge: str, actions: str, fetch: Fetch) -> None:
        """Take up what was asked for in `challenge`. Raises: Refused if it must not, or cannot, be answered."""
        access = self._access
        chosen = choose_challenge(
            challenge,
            access.repository,
            actions=actions,
            plain_http=access.plain_http,
            token_hosts=access.token_hosts,
        )
        if isinstance(chosen, Basic):
            if access.credentials is None or not access.credentials.password:
                raise Refused(
                    f"registry {access.repository.host} asks for a name and password",
                    hint="name the file that has them: --registry-config FILE, as docker login writes it",
                )
            self.header = access.credentials.basic()
        else:
            self.header = Secret("Bearer " + self._token(chosen, fetch).reveal())

    def _token(self, bearer: Bearer, fetch: Fetch) -> Secret:
        credentials = self._access.credentials
        query = {"service": bearer.service, "scope": bearer.scope}
        asked = {key: value for key, value in query.items() if value is not None}
        if credentials is not None and credentials.identity_token is not None:
            form = asked | {
                "grant_type": "refresh_token",
                "client_id": _CLIENT,
                "refresh_token": credentials.identity_token.reveal(),
            }
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            data = fetch("POST", bearer.realm, headers, urlencode(form).encode())
        else:
            headers = {} if credentials is None else {"Authorization": credentials.basic().reveal()}
            separator = "&" if "?" in bearer.realm else "?"
            data = fetch("GET", f"{bearer.realm}{separator}{urlencode(asked)}", headers, None)
        try:
            body = json.loads(data)
            token = body.get("token") or body.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise Refused(
                f"{bearer.realm.partition('?')[0][:200]} answered without a token",
                hint="correct the registry's auth.token.realm",
            )
        return Secret(token)
