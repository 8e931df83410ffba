"""The lab's control plane does what a production one must do for this project."""

from __future__ import annotations

import base64
import http.client
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from lab.control_plane.ports import LENT, free_port
from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused
from provisioner.cli.service.control_plane import PRODUCTION_FLAGS, production_flags_text, production_objects_text
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CONFIG_MAPS, CSRS, SECRETS, ResourceType
from tests.tools import is_running, need_root

GENEROUS_SECONDS = 180


def eventually(condition: Callable[[], Any]) -> Any:
    """What `condition` returns once it is true."""
    deadline = time.monotonic() + GENEROUS_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def bootstrap_token(cluster: Cluster, unique: str, expires: datetime) -> str:
    token_id, secret = unique[:6], "0123456789abcdef"
    data = {
        "token-id": token_id,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    metadata = {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"}
    cluster.create(SECRETS, {"metadata": metadata, "type": "bootstrap.kubernetes.io/token", "stringData": data})
    return f"{token_id}.{secret}"


def with_token(plane: ControlPlane, directory: Path, token: str) -> Cluster:
    content = yaml.safe_load(plane.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": token}
    path = directory / "token.kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return Cluster.connect(path)


def request_certificate(cluster: Cluster, name: str, node: str) -> None:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes")
    subject = x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}")])
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    spec = {
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
        "request": base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode(),
    }
    cluster.create(CSRS, {"metadata": {"name": name}, "spec": spec})


def approve(cluster: Cluster, name: str) -> None:
    body = cluster.get(CSRS, name)
    condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "approved by a test"}
    cluster.replace(CSRS, {**body, "status": {"conditions": [condition]}}, subresource="approval")


def test_a_token_may_ask_for_a_certificate_which_only_an_approver_grants_and_only_for_a_day(
    control_plane: ControlPlane, cluster: Cluster, tmp_path: Path, unique: str
) -> None:
    token = bootstrap_token(cluster, unique, datetime.now(UTC) + timedelta(minutes=5))
    joining = with_token(control_plane, tmp_path, token)
    # The first binding lets it ask. With the second kubeadm's clusters approve by themselves; this one must not.
    for role in ("node-bootstrapper", "certificates.k8s.io:certificatesigningrequests:nodeclient"):
        cluster.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{unique}-{role.replace(':', '-')}"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": f"system:{role}",
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}
                ],
            },
            manager="test",
        )

    def may_ask() -> bool:
        """Token and rights are known to the API server a moment after they were made."""
        try:
            request_certificate(joining, f"{unique}-left-alone", unique)
        except Refused:
            return False
        return True

    eventually(may_ask)
    request_certificate(joining, f"{unique}-approved", unique)
    approve(cluster, f"{unique}-approved")
    pem = eventually(lambda: cluster.get(CSRS, f"{unique}-approved")["status"].get("certificate"))
    certificate = x509.load_pem_x509_certificate(base64.b64decode(pem))
    lives = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lives <= timedelta(hours=24, minutes=10)  # the signer dates it back by five minutes
    assert cluster.get(CSRS, f"{unique}-left-alone")["status"] == {}
    with pytest.raises(Refused, match="cannot list resource"):
        joining.list(SECRETS, namespace="kube-system")


def test_an_expired_token_is_removed(cluster: Cluster, unique: str) -> None:
    bootstrap_token(cluster, unique, datetime.now(UTC) - timedelta(minutes=5))

    def gone() -> bool:
        try:
            cluster.get(SECRETS, f"bootstrap-token-{unique[:6]}", namespace="kube-system")
        except NotFound:
            return True
        return False

    eventually(gone)


def test_without_credentials_nothing_but_health_is_answered(control_plane: ControlPlane) -> None:
    tls = ssl.create_default_context(cadata=control_plane.ca_pem)
    answers = {}
    for path in ("/readyz", "/version", "/api/v1/nodes"):
        connection = http.client.HTTPSConnection(control_plane.address, control_plane.port, context=tls)
        connection.request("GET", path)
        answers[path] = connection.getresponse().status
        connection.close()
    assert answers == {"/readyz": 200, "/version": 401, "/api/v1/nodes": 401}


def test_the_audit_log_tells_who_touched_a_secret_and_not_what_is_in_it(
    control_plane: ControlPlane, cluster: Cluster, unique: str
) -> None:
    password = f"password-of-{unique}"
    cluster.create(
        SECRETS, {"metadata": {"name": unique, "namespace": "default"}, "stringData": {"password": password}}
    )
    eventually(lambda: f'"name":"{unique}"' in control_plane.audit_log.read_text())
    log = control_plane.audit_log.read_text()
    assert password not in log
    assert base64.b64encode(password.encode()).decode() not in log


def test_the_api_server_may_talk_to_kubelets_and_to_nothing_else(cluster: Cluster) -> None:
    reviews = ResourceType("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews")

    def may(verb: str, resource: str, subresource: str = "") -> bool:
        attributes = {"verb": verb, "resource": resource, "subresource": subresource}
        spec = {"user": "kube-apiserver-kubelet-client", "resourceAttributes": attributes}
        allowed: bool = cluster.create(reviews, {"metadata": {}, "spec": spec})["status"]["allowed"]
        return allowed

    assert may("create", "nodes", "proxy")
    assert not may("get", "secrets")


def test_what_was_written_is_there_after_a_restart_at_the_same_address(
    binaries: Binaries, tmp_path: Path, unique: str
) -> None:
    plane = ControlPlane(tmp_path, binaries)
    with plane:
        url = plane.server_url
        body = {"metadata": {"name": unique, "namespace": "default"}, "data": {"colour": "red"}}
        Cluster.connect(plane.kubeconfig).create(CONFIG_MAPS, body)
    assert plane.pids() == {}
    with ControlPlane(tmp_path, binaries) as again:  # as by another process
        assert again.server_url == url
        found = Cluster.connect(plane.kubeconfig).get(CONFIG_MAPS, unique, namespace="default")
        assert found["data"] == {"colour": "red"}


def test_a_start_that_fails_says_what_the_log_says_and_leaves_nothing_running(
    binaries: Binaries, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        plane = ControlPlane(tmp_path, binaries, port=taken.getsockname()[1])
        with pytest.raises(NeedsHuman, match=r"kube-apiserver ended with status 1 (.|\n)*address already in use"):
            plane.start()
    assert plane.pids() == {}


def test_an_address_that_this_machine_lacks_is_named() -> None:
    with pytest.raises(NeedsHuman, match=r"no control plane at 192\.0\.2\.1: .*network namespace"):
        free_port("192.0.2.1")


def test_a_free_port_is_none_that_the_kernel_lends_to_others_and_one_that_can_be_had() -> None:
    lowest, highest = (int(word) for word in LENT.read_text().split())
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for _ in range(20):
            port = free_port("127.0.0.1", kind)
            assert not lowest <= port <= highest
            with socket.socket(type=kind) as taken:
                taken.bind(("127.0.0.1", port))


def test_a_port_that_was_given_and_is_not_used_yet_is_given_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    given = free_port("127.0.0.1")
    monkeypatch.setattr(random, "SystemRandom", lambda: SimpleNamespace(randint=lambda *_: given))
    assert free_port("127.0.0.1") != given
    another = (
        "import random; from types import SimpleNamespace\n"
        f"random.SystemRandom = lambda: SimpleNamespace(randint=lambda *_: {given})\n"
        "from lab.control_plane.ports import free_port\n"
        "print(free_port('127.0.0.1'))"
    )
    ran = subprocess.run([sys.executable, "-c", another], capture_output=True, text=True, check=True)
    assert int(ran.stdout) != given, "nor in another process"


STARTS_ONE = """
import sys, time
from pathlib import Path
from lab.binaries.obtain import find_binaries
from lab.control_plane.plane import ControlPlane
plane = ControlPlane(Path(sys.argv[1]), find_binaries(assets=Path(sys.argv[2])), address=sys.argv[3], port=6443)
plane.start()
print(*plane.pids().values(), flush=True)
time.sleep(600)
"""


def test_in_a_network_namespace_at_a_given_address_and_not_longer_than_its_parent(
    binaries: Binaries, tmp_path: Path
) -> None:
    need_root("make a network namespace")
    script = 'ip link set lo up && ip address add 10.80.0.1/24 dev lo && exec "$@"'
    assets = binaries.kubectl.parent
    command = [sys.executable, "-c", STARTS_ONE, tmp_path, assets, "10.80.0.1"]
    parent = subprocess.Popen(
        ["unshare", "--net", "sh", "-ec", script, "sh", *command],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3, "it is ready, and tells its processes"
        kubeconfig = yaml.safe_load((tmp_path / "admin.kubeconfig").read_text())
        assert kubeconfig["clusters"][0]["cluster"]["server"] == "https://10.80.0.1:6443"
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    eventually(lambda: not any(is_running(pid) for pid in pids))


def test_the_lab_runs_with_the_flags_that_production_is_told_to_set(control_plane: ControlPlane) -> None:
    pids = control_plane.pids()
    for component, flags in PRODUCTION_FLAGS.items():
        command = Path(f"/proc/{pids[component]}/cmdline").read_text().split("\0")
        for flag in flags:
            name, _, value = flag.flag.partition("=")
            given = [argument.partition("=")[2] for argument in command if argument.startswith(f"{name}=")]
            assert len(given) == 1, f"{component} {name}"
            if name != "--controllers":
                assert given[0].endswith(value.rsplit("/", 1)[-1]), f"{component} {name}"


def test_the_flags_and_objects_for_production_can_be_copied() -> None:
    text = production_flags_text()
    for flags in PRODUCTION_FLAGS.values():
        for flag in flags:
            assert f"{flag.flag} " in text
            assert flag.reason in text
    kinds = [document["kind"] for document in yaml.safe_load_all(production_objects_text())]
    assert kinds == ["Namespace", "ClusterRoleBinding"]
