"""How the API server is reached at the moment: address, trust and credentials, and the connections made with them.

A kubeconfig, and the files that it names (`tokenFile`, `client-certificate`, `client-key`, `certificate-authority`),
are read again when they change, so that whoever renews a token or a certificate restarts no service. What cannot be
read, or is only half written, changes nothing: the former credentials are used on, and the files are looked at again.
A file that is being written may be good YAML, with half a token or none: a change counts once it was seen twice.
The pod's service account needs none of that: the `kubernetes` package reads its token anew each minute.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog
import urllib3
import yaml

from provisioner.api.machinery.documents import Unreadable, read_bytes, read_yaml
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.outbound.sockets import bound

log = structlog.get_logger()

LOOK_SECONDS: Final = 5.0
"""How often it is looked whether a file has changed, at most: with a request."""
CONNECTIONS: Final = 64
"""Kept open: each worker of each controller, and a watch of each kind."""

_NAMED: Final = ("tokenFile", "client-certificate", "client-key", "certificate-authority")
_MOST_FILES: Final = 32
_KEEPALIVE: Final = [
    # A host that vanished without a word (power, cable) is noticed after about 25 s even on an idle watch.
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]

State = tuple[tuple[str, int, int, int], ...]
"""Of each file its path, inode, size and time of change."""


class Access:
    """One way to one API server. Usable from several threads."""

    def __init__(
        self,
        load: Callable[[], Any],
        kubeconfig: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`load`: makes a configuration of the `kubernetes` package, of `kubeconfig` if that is given."""
        self._load, self._kubeconfig, self._clock = load, kubeconfig, clock
        self._lock = threading.Lock()
        # Before it is read: a change in between is seen as one.
        self._state, self._looked = self._look(), clock()
        self._seen = self._state
        self.configuration = load()
        self.pool = _connections(self.configuration)

    def renew(self) -> None:
        """Take up what has changed in the files, if it was not looked just now. Who is under way is not disturbed."""
        if self._kubeconfig is None or self._clock() - self._looked < LOOK_SECONDS or not self._lock.acquire(False):
            return
        try:
            self._looked = self._clock()
            state, before = self._look(), self._seen
            self._seen = state
            if state == self._state or state != before:
                return
            try:
                configuration = self._load()
                if _is_anonymous(configuration) and not _is_anonymous(self.configuration):
                    raise NeedsHuman("it has no credentials, and had some", hint="write the whole kubeconfig")
                pool = _connections(configuration)
            except Exception as error:  # whatever stands in the file, requests go on
                log.warning("changed credentials were not loaded", kubeconfig=str(self._kubeconfig), error=str(error))
                return
            self._state, self.configuration, self.pool = state, configuration, pool
            log.info("changed credentials were loaded", kubeconfig=str(self._kubeconfig))
        finally:
            self._lock.release()

    def _look(self) -> State:
        if self._kubeconfig is None:
            return ()
        found = []
        for path in (self._kubeconfig, *_named_files(self._kubeconfig)):
            try:
                status = path.stat()
            except OSError:
                found.append((str(path), 0, 0, 0))
            else:
                found.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)


def _named_files(kubeconfig: Path) -> list[Path]:
    """Files that it names, in any of its users and clusters."""
    try:
        content = read_yaml(read_bytes(kubeconfig).decode())
        parts = [each[kind[:-1]] for kind in ("users", "clusters") for each in content.get(kind) or ()]
        named = [str(part[key]) for part in parts for key in _NAMED if part and part.get(key)]
    except (OSError, ValueError, AttributeError, KeyError, TypeError, Unreadable):
        return []
    return [kubeconfig.parent / os.fspath(name) for name in named[:_MOST_FILES]]


def load_configuration(kubeconfig: Path | None, context: str | None) -> Any:
    """Of the `kubernetes` package, from `kubeconfig`; without one, from the pod's service account.

    Raises: NeedsHuman if it is not usable.
    """
    from kubernetes import config
    from kubernetes.client import Configuration

    configuration = Configuration()
    try:
        if kubeconfig is not None:
            load: Any = config.load_kube_config
            load(config_file=str(kubeconfig), context=context, client_configuration=configuration)
        else:
            load = config.load_incluster_config
            load(client_configuration=configuration)
    except (config.ConfigException, OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's service account"
        message = f"no access to the cluster by {where}: {error}"
        raise NeedsHuman(message, hint="name a kubeconfig that exists") from error
    return configuration


def _is_anonymous(configuration: Any) -> bool:
    return not (configuration.api_key or configuration.cert_file or configuration.username)


def _connections(configuration: Any) -> urllib3.PoolManager:
    from kubernetes.client.rest import RESTClientObject

    # The package's pool honours proxies, client certificates, tls-server-name; only its verbs are not ours.
    pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
    pool.connection_pool_kw |= {"socket_options": _KEEPALIVE, "maxsize": CONNECTIONS}
    bound(pool)
    return pool
