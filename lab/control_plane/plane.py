"""A real control plane for tests and the lab: etcd, kube-apiserver, kube-controller-manager, started in order.

    plane = ControlPlane(directory, binaries)
    plane.start()          # returns when /readyz says ok, about 3 s
    ... plane.kubeconfig, plane.server_url, plane.ca_pem
    plane.stop()

It runs in the network namespace of whoever starts it. A directory that was used before is used again with its keys and
its data, so that stop() and start() is a restart of the same cluster. The flags that production needs as well are in
`control_plane_flags`, all flags in `control_plane_commands`, the keys in `control_plane_pki`.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import yaml

from lab.binaries.obtain import Binaries
from lab.child_process import LabProcess
from lab.control_plane.commands import (
    LOOPBACK,
    SERVICE_ADDRESS,
    Keys,
    ServerFiles,
    api_server_command,
    controller_manager_command,
    etcd_command,
    scheduler_command,
)
from lab.control_plane.objects import apply_cluster_objects
from lab.control_plane.pki import Authority, create_key, render_kubeconfig
from lab.control_plane.ports import free_port
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cli.service.control_plane import AUDIT_POLICY, AUTHENTICATION, KUBELET_CLIENT_USER

__all__ = ["ControlPlane", "render_kubeconfig"]

READY_SECONDS: Final = 180.0
STOP_SECONDS: Final = 10.0
API_SERVER_STOP_SECONDS: Final = 2.0


class ControlPlane:
    """One etcd, one API server, one controller manager, and a scheduler if asked for.

    `address` is where the API server listens; it must exist in this network namespace (`lo` must be up too: etcd is on
    loopback). `port` None means a free one. `server_names` are further names or addresses under which clients reach it.
    `authorization`: an AuthorizationConfiguration in place of the modes Node and RBAC.
    """

    def __init__(
        self,
        directory: Path,
        binaries: Binaries,
        *,
        address: str = LOOPBACK,
        port: int | None = None,
        server_names: Sequence[str] = (),
        scheduler: bool = False,
        certificate_duration: str | None = None,
        node_grace: str | None = None,
        authorization: Path | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.address = address
        self.port = port
        self._binaries = binaries
        self._server_names = tuple(server_names)
        self._with_scheduler = scheduler
        self._certificate_duration = certificate_duration
        self._node_grace = node_grace
        self._authorization = authorization
        self._pki = self.directory / "pki"
        self._processes: dict[str, LabProcess] = {}

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig (group system:masters)."""
        return self.directory / "admin.kubeconfig"

    @property
    def ca_pem(self) -> str:
        """Certificate of the cluster's authority."""
        return (self._pki / "ca.crt").read_text()

    @property
    def server_url(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def audit_log(self) -> Path:
        return self.directory / "logs" / "audit.log"

    @property
    def etcd_data(self) -> Path:
        """Where etcd keeps everything; `snapshot.py` saves and restores it."""
        return self.directory / "etcd"

    @property
    def etcd_url(self) -> str:
        """Where etcd listens for the API server; another port after each new ControlPlane."""
        prefix = "--listen-client-urls="
        return next(word for word in self._processes["etcd"].command if word.startswith(prefix)).removeprefix(prefix)

    @property
    def etcd_client(self) -> tuple[str, ...]:
        """Options of etcdctl: the address, and the API server's certificate for etcd."""
        files = {"cacert": "etcd-ca.crt", "cert": "apiserver-etcd.crt", "key": "apiserver-etcd.key"}
        return (f"--endpoints={self.etcd_url}", *(f"--{option}={self._pki / name}" for option, name in files.items()))

    def start(self) -> None:
        """Start what does not run and wait until it is ready. Raises: NeedsHuman with the last lines of the log."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._processes:
            self._prepare()
        try:
            self._processes["etcd"].start()
            self.start_api_server()
            apply_cluster_objects(self.server_url, self._tls())
            for process in self._processes.values():
                process.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything. The API server goes before etcd: without etcd it would hang for 20 s."""
        for process in reversed(self._processes.values()):
            # The API server would wait long for its watchers; it keeps nothing that a kill could lose.
            process.stop(API_SERVER_STOP_SECONDS if process.name == "kube-apiserver" else STOP_SECONDS)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill_api_server(self) -> None:
        """As if its machine lost power: clients see connections reset, then refused."""
        self._processes["kube-apiserver"].kill()

    def start_api_server(self) -> None:
        """Start it at the same address and wait for /readyz."""
        process = self._processes["kube-apiserver"]
        process.start()
        self._wait_until_ready(process)

    def pids(self) -> dict[str, int]:
        """Process ids of what runs, for who must clean up after a crash."""
        return {name: process.pid for name, process in self._processes.items() if process.running and process.pid}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _prepare(self) -> None:
        if self.port is None:
            self.port = _port_of(self.kubeconfig) or free_port(self.address)
        etcd_port, peer_port = free_port(LOOPBACK), free_port(LOOPBACK)
        ca, etcd_ca = Authority.create(self._pki, "ca"), Authority.create(self._pki, "etcd-ca")
        names = dict.fromkeys(
            (self.address, LOOPBACK, "localhost", SERVICE_ADDRESS, "kubernetes.default.svc", *self._server_names)
        )
        keys = Keys(
            ca=ca.files,
            etcd_ca=etcd_ca.files.certificate,
            etcd=etcd_ca.issue("etcd", "etcd", server_names=(LOOPBACK, "localhost")),
            etcd_client=etcd_ca.issue("apiserver-etcd", "kube-apiserver"),
            api_server=ca.issue("apiserver", "kube-apiserver", server_names=tuple(names)),
            kubelet_client=ca.issue("apiserver-kubelet", KUBELET_CLIENT_USER),
            service_accounts=create_key(self._pki / "service-accounts.key"),
        )
        for name, user, group in (
            ("admin", "lab-admin", "system:masters"),
            ("controller-manager", "system:kube-controller-manager", None),
            ("scheduler", "system:kube-scheduler", None),
        ):
            path = self._kubeconfig_of(name)
            path.touch(mode=0o600)
            pair = ca.issue(name, user, organization=group)
            path.write_text(render_kubeconfig(self.server_url, self.ca_pem.encode(), pair, user=name))
        files = ServerFiles(
            authentication=self.directory / "authentication.yaml",
            audit_policy=self.directory / "audit-policy.yaml",
            audit_log=self.audit_log,
            authorization=self._authorization,
        )
        files.authentication.write_text(yaml.safe_dump(AUTHENTICATION))
        files.audit_policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        commands = {
            "etcd": etcd_command(self._binaries.etcd, self.etcd_data, etcd_port, peer_port, keys),
            "kube-apiserver": api_server_command(
                self._binaries.kube_apiserver, self.address, self.port, etcd_port, keys, files
            ),
            "kube-controller-manager": controller_manager_command(
                self._binaries.kube_controller_manager,
                self._kubeconfig_of("controller-manager"),
                keys,
                certificate_duration=self._certificate_duration,
                node_grace=self._node_grace,
            ),
        }
        if self._with_scheduler and self._binaries.kube_scheduler:
            commands["kube-scheduler"] = scheduler_command(
                self._binaries.kube_scheduler, self._kubeconfig_of("scheduler")
            )
        logs = self.directory / "logs"
        self._processes = {name: LabProcess(name, command, logs / f"{name}.log") for name, command in commands.items()}

    def _kubeconfig_of(self, name: str) -> Path:
        return self.directory / f"{name}.kubeconfig"

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca_pem)
        context.load_cert_chain(self._pki / "admin.crt", self._pki / "admin.key")
        return context

    def _wait_until_ready(self, process: LabProcess) -> None:
        deadline = time.monotonic() + READY_SECONDS
        observed = "no answer"
        tls = self._tls()
        while time.monotonic() < deadline:
            for part in (self._processes["etcd"], process):
                if not part.running:
                    raise NeedsHuman(
                        f"{part.name} ended with status {part.exit_status()} before the API server was ready; "
                        "its log ends:\n"
                        f"{part.log_tail()}\n",
                        hint=f"read {part.log}",
                    )
            connection = http.client.HTTPSConnection(self.address, self.port, timeout=5, context=tls)
            try:
                connection.request("GET", "/readyz?verbose")
                response = connection.getresponse()
                observed = response.read().decode(errors="replace")
                if response.status == http.HTTPStatus.OK:
                    return
            except OSError as error:
                observed = str(error)
            finally:
                connection.close()
            time.sleep(0.05)
        raise NeedsHuman(
            f"API server {self.server_url} is not ready after {READY_SECONDS:.0f} s: {observed}; its log ends:\n"
            f"{process.log_tail()}\n",
            hint=f"read {process.log}",
        )


def _port_of(kubeconfig: Path) -> int | None:
    """The port that this directory's cluster had before, so that kubeconfigs in other hands stay true."""
    if not kubeconfig.exists():
        return None
    server: str = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return int(server.rsplit(":", 1)[1])
