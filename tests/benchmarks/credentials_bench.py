"""What it costs that certificates of earlier boots are refused: writes by the policy, reads by the webhook.

`python -m tests.benchmarks.credentials_bench --servers 100 1000 10000 --requests 3000`. Real: etcd, the API server with
the shipped policies, `provisioner authorizer` in a process of its own, certificates, TLS. Made up: the servers on the
list. The peers in the same run: the same writes without the policy's binding, by turns; the webhook's answers beside
a server of Python that answers the same bytes over the same TLS and thinks nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import signal
import socketserver
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lab.binaries.obtain import find_binaries
from lab.control_plane.pki import Authority, KeyPair
from lab.control_plane.plane import ControlPlane
from lab.control_plane.ports import free_port
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CREDENTIALS, LEASES, NODE_LEASES, NODES, ROLE_BINDINGS, ROLES
from provisioner.join.credentials.listed import ListedServer, binding_of, role_of, shard_of
from provisioner.join.credentials.web import PATH
from tests.benchmarks.processor_time import seconds_of
from tests.benchmarks.record import Check, Goal, begin, say, spread
from tests.conftest import install
from tests.people import BINDINGS, kubeconfig_of, of_account, until
from tests.tools import CACHE

NODE: Final = "bench-u01"
ROUNDS: Final = 6
SETTLE_SECONDS: Final = 2.0
"""After a change of bindings the API server compiles policies anew."""
GOALS: Final = {"added": Goal("ms that the policy adds to the median of a Node's write", 1.0)}
POLICY: Final = "provisioner-credentials"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--requests", type=int, default=3000)
    options, _ = parser.parse_known_args(arguments)
    binaries = find_binaries(
        assets=Path(os.environ["KUBEBUILDER_ASSETS"]) if "KUBEBUILDER_ASSETS" in os.environ else None,
        cache=CACHE,
        allow_download=False,
        allow_build=False,
    )
    run = begin("credentials")
    found: list[Size] = []
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder) / "plane", binaries) as plane:
        os.kill(plane.pids()["kube-controller-manager"], signal.SIGTERM)
        admin = Cluster.connect(plane.kubeconfig, user_agent="credentials-bench")
        install(admin)
        node, credential = a_node(plane, admin, Path(folder))
        for servers in options.servers:
            size = fill(admin, servers, credential)
            found.append(Size(servers, size, *writes(plane, admin, node, options.requests)))
            say(row(found[-1]))
        asked = reviews(plane, Path(folder), credential, options.requests)
    return run.finish(table(found, asked), check_goals(found), ROUNDS)


class Writes:
    """Seconds of each request of each round, as the client sees it, and the API server's processor seconds."""

    def __init__(self) -> None:
        self.rounds: list[list[float]] = []
        self.spent = 0.0

    @property
    def seconds(self) -> list[float]:
        return [each for seconds in self.rounds for each in seconds]

    @property
    def processor(self) -> float:
        """Seconds for one request."""
        return self.spent / len(self.seconds)


@dataclass(frozen=True)
class Size:
    """servers: that are listed; role_bytes: of the largest Role."""

    servers: int
    role_bytes: int
    with_policy: Writes
    without: Writes

    def added_ms(self) -> list[float]:
        """By the policy to the median of a write, of each round."""
        pairs = zip(self.with_policy.rounds, self.without.rounds, strict=True)
        return [1000 * (statistics.median(bound) - statistics.median(free)) for bound, free in pairs]


def row(size: Size) -> str:
    return (
        f"| {size.servers} | {size.role_bytes / 1000:.1f} KB | {spread(size.added_ms(), '+.2f')} ms "
        f"| {told(size.without)} | {told(size.with_policy)} "
        f"| {size.without.processor * 1e6:.0f} µs, {size.with_policy.processor * 1e6:.0f} µs |"
    )


def check_goals(found: Sequence[Size]) -> list[Check]:
    return [GOALS["added"].check(f"{size.servers} servers", size.added_ms()) for size in found]


def told(writes: Writes) -> str:
    ordered = sorted(writes.seconds)
    middle, late = statistics.median(ordered) * 1000, ordered[int(len(ordered) * 0.99)] * 1000
    return f"{middle:.2f} ms, {late:.1f} ms"


def a_node(plane: ControlPlane, admin: Cluster, folder: Path) -> tuple[Cluster, str]:
    """A Node with its Lease, as its kubelet sees the cluster; and the credential id."""
    admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    path = kubeconfig_of(plane, folder, f"system:node:{NODE}", group="system:nodes")
    name = "person-" + hashlib.sha256(f"system:node:{NODE}".encode()).hexdigest()[:12]
    pem = (plane.directory / "pki" / f"{name}.crt").read_bytes()
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    return Cluster.connect(path), "X509SHA256=" + hashlib.sha256(der).hexdigest()


def fill(admin: Cluster, servers: int, credential: str) -> int:
    """List so many servers, each with two certificates; the bytes of a Role."""
    shards: dict[str, dict[str, ListedServer]] = {}
    for number in range(servers):
        digests = [hashlib.sha256(f"{number}-{each}".encode()).hexdigest() for each in range(2)]
        name = f"r{number // 40:03}-u{number % 40:02}"
        shards.setdefault(shard_of(name), {})[name] = ListedServer(
            credentials=tuple(f"X509SHA256={d}" for d in digests)
        )
    shards.setdefault(shard_of(NODE), {})[NODE] = ListedServer(credentials=(credential,))
    for shard, entries in shards.items():
        admin.apply(role_of(shard, entries), manager="bench")
        if admin.find(ROLE_BINDINGS, shard, namespace=CREDENTIALS) is None:
            admin.create(ROLE_BINDINGS, binding_of(shard))
    time.sleep(3.0)  # the authorizer reads them
    return max(len(json.dumps(admin.get(ROLES, shard, namespace=CREDENTIALS)["rules"])) for shard in shards)


def writes(plane: ControlPlane, admin: Cluster, node: Cluster, requests: int) -> tuple[Writes, Writes]:
    """The Node's Lease, renewed with the policy and without, by turns."""
    binding = admin.get(BINDINGS, POLICY)
    binding = {key: binding[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": POLICY}}
    found = {True: Writes(), False: Writes()}
    lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
    lease["metadata"] = {"name": NODE, "namespace": NODE_LEASES}
    spec = {"holderIdentity": NODE, "leaseDurationSeconds": 40}
    node.apply(lease | {"spec": spec}, manager="kubelet")
    for turn in range(ROUNDS * 2):
        is_bound = turn % 2 == 0
        if is_bound:
            admin.apply(binding, manager="tests")
        else:
            admin.delete(BINDINGS, POLICY)
        until(lambda is_bound=is_bound: is_in_force(plane) is is_bound)  # type: ignore[misc]
        time.sleep(SETTLE_SECONDS)
        before = seconds_of(plane.pids()["kube-apiserver"])
        found[is_bound].rounds.append([])
        for _ in range(requests // ROUNDS):
            body = {"spec": {**spec, "renewTime": rfc3339_micro(datetime.now(UTC))}}
            began = time.perf_counter()
            node.patch(LEASES, NODE, body, namespace=NODE_LEASES)
            found[is_bound].rounds[-1].append(time.perf_counter() - began)
        found[is_bound].spent += seconds_of(plane.pids()["kube-apiserver"]) - before
    admin.apply(binding, manager="tests")
    return found[True], found[False]


def is_in_force(plane: ControlPlane) -> bool:
    """Whether who acts as the Node without its certificate is refused."""
    groups = ("system:nodes", "system:authenticated")
    actor = Cluster.connect(plane.kubeconfig, as_user=f"system:node:{NODE}", as_groups=groups)
    try:
        actor.patch(NODES, NODE, {"metadata": {"labels": {"example.com/a": "b"}}}, dry_run=True)
    except Refused:
        return True
    return False


# The webhook


def reviews(plane: ControlPlane, folder: Path, credential: str, requests: int) -> list[str]:
    """Rows: the webhook, and a server that thinks nothing."""
    servers, clients = Authority.create(folder / "tls", "servers"), Authority.create(folder / "tls", "clients")
    pair = servers.issue("authorizer", "authorizer", server_names=["127.0.0.1"])
    client = clients.issue("api", "kube-apiserver")
    context = ssl.create_default_context(cafile=str(servers.files.certificate))
    context.load_cert_chain(client.certificate, client.key)
    extra = {"authentication.kubernetes.io/credential-id": [credential]}
    spec = {"user": f"system:node:{NODE}", "groups": ["system:nodes", "system:authenticated"], "extra": extra}
    spec["resourceAttributes"] = {"verb": "get", "resource": "nodes", "name": NODE, "version": "v1"}
    body = json.dumps({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}).encode()
    rows = []
    with authorizer(plane, folder, pair, clients.files.certificate) as (pid, port):
        wait_for_list(port, context, body)
        answer, one = ask(port, context, body, requests, pid)
        rows.append(f"| `provisioner authorizer` | {one} |")
    with bare_server(pair, clients.files.certificate, answer) as port:
        rows.append(f"| a server that answers the same bytes | {ask(port, context, body, requests, None)[1]} |")
    return rows


@contextmanager
def authorizer(plane: ControlPlane, folder: Path, pair: KeyPair, client_ca: Path) -> Iterator[tuple[int, int]]:
    port = free_port("127.0.0.1")
    kubeconfig = kubeconfig_of(plane, folder, of_account("authorizer"))
    command = [sys.executable, "-m", "provisioner.cli", "authorizer", "--kubeconfig", str(kubeconfig)]
    command += ["--listen", f"127.0.0.1:{port}", "--certificate", str(pair.certificate), "--key", str(pair.key)]
    process = subprocess.Popen([*command, "--client-ca", str(client_ca)])
    try:
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def bare_server(pair: KeyPair, client_ca: Path, answer: bytes) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    context.load_verify_locations(client_ca)
    context.verify_mode = ssl.CERT_REQUIRED

    # Not pytest-httpserver: a bound for a benchmark has to keep connections and do no more than answer.
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def get_request(self) -> tuple[Any, Any]:
            accepted, source = self.socket.accept()
            return context.wrap_socket(accepted, server_side=True), source

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def wait_for_list(port: int, context: ssl.SSLContext, body: bytes) -> None:
    def knows() -> bool:
        try:
            return b"of the current boot" in ask(port, context, body, 1, None)[0]
        except OSError:
            return False

    until(knows)


def ask(port: int, context: ssl.SSLContext, body: bytes, requests: int, pid: int | None) -> tuple[bytes, str]:
    """The answer; and how long one takes by a connection that is kept, how many a second come of eight at once."""
    said, seconds = b"", []
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=20)) as connection:
        for _ in range(requests):
            began = time.perf_counter()
            connection.request("POST", PATH, body)
            said = connection.getresponse().read()
            seconds.append(time.perf_counter() - began)
    ordered = sorted(seconds)
    before = seconds_of(pid) if pid is not None else 0.0
    began = time.perf_counter()
    rate = 8 * requests / at_once(lambda: loop(port, context, body, requests)) if requests > 1 else 0.0
    spent = f"{(seconds_of(pid) - before) / (8 * requests) * 1e6:.0f} µs" if pid is not None else "–"
    middle, late = statistics.median(ordered) * 1000, ordered[int(len(ordered) * 0.99)] * 1000
    return said, f"{middle:.2f} ms, {late:.1f} ms | {rate:.0f}/s | {spent}"


def loop(port: int, context: ssl.SSLContext, body: bytes, requests: int) -> None:
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)) as connection:
        for _ in range(requests):
            connection.request("POST", PATH, body)
            connection.getresponse().read()


def at_once(work: Callable[[], None]) -> float:
    """Seconds until eight threads have done it."""
    threads = [threading.Thread(target=work) for _ in range(8)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def table(found: Sequence[Size], asked: Sequence[str]) -> str:
    rows = [
        "## Certificates of earlier boots are refused: what it costs",
        "",
        f"A Node renews its Lease, with the policy's binding and without, by turns, {ROUNDS} times each. Added: to the",
        "median of a write, median (least to most) of the rounds. Then median and 99th percentile of a write, as the",
        "client sees it, and the API server's processor time for one, both without and with the policy.",
        "",
        "| servers listed | largest Role | added | write, without | write, with | processor, without and with |",
        "|---|---|---|---|---|---|",
    ]
    rows += [row(size) for size in found]
    rows += [
        "",
        "The authorization webhook, asked about a Node of the current boot, by one connection and by eight at once",
        "(whose clients are Python on the same cores):",
        "",
        "| | median, 99th percentile | answers of eight | processor for one |",
        "|---|---|---|---|",
    ]
    return "\n".join([*rows, *asked])


if __name__ == "__main__":
    sys.exit(main())
