"""A token, a certificate or a kubeconfig is renewed in its file, and the service that runs takes it up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane.pki import Authority
from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.errors import Refused
from provisioner.cluster import access
from provisioner.cluster.access import LOOK_SECONDS
from provisioner.cluster.client import Cluster


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """So much that files are looked at again, and a change is seen twice."""
    now, made = [0.0], list[access.Access]()
    real = access.Access.__init__

    def init(self: access.Access, *args: Any, **more: Any) -> None:
        real(self, *args, **more | {"clock": lambda: now[0]})
        made.append(self)

    monkeypatch.setattr(access.Access, "__init__", init)

    def later() -> None:
        now[0] += LOOK_SECONDS
        for each in made:
            each.renew()
        now[0] += LOOK_SECONDS

    return later


def write(path: Path, text: str) -> None:
    """As who is careful does it: whole or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)


def with_user(plane: ControlPlane, path: Path, user: dict[str, Any]) -> Path:
    content = yaml.safe_load(plane.kubeconfig.read_text())
    content["users"][0]["user"] = user
    write(path, yaml.safe_dump(content))
    return path


def certificate(plane: ControlPlane, name: str) -> dict[str, Any]:
    pair = Authority.create(plane.directory / "pki", "ca").issue(name, name, organization="system:masters")
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}


def test_a_kubeconfig_that_is_exchanged_is_read_again(
    control_plane: ControlPlane, unique: str, tmp_path: Path, pass_time: Callable[[], None]
) -> None:
    first, second = f"{unique}-a", f"{unique}-b"
    path = with_user(control_plane, tmp_path / "config", certificate(control_plane, first))
    cluster = Cluster.connect(path)
    other = cluster.with_timeout(20)
    assert cluster.ask_who_i_am() == first
    with_user(control_plane, path, certificate(control_plane, second))
    assert cluster.ask_who_i_am() == first, "it is not looked at with each request"
    pass_time()
    assert (cluster.ask_who_i_am(), other.ask_who_i_am()) == (second, second)


@pytest.mark.parametrize("half", ["", "users: [", "{}", "kind: Config"])
def test_one_that_is_half_written_changes_nothing_until_it_is_whole(
    control_plane: ControlPlane, unique: str, tmp_path: Path, pass_time: Callable[[], None], half: str
) -> None:
    path = with_user(control_plane, tmp_path / "config", certificate(control_plane, f"{unique}-a"))
    cluster = Cluster.connect(path)
    path.write_text(half)
    pass_time()
    assert cluster.ask_who_i_am() == f"{unique}-a"
    path.unlink()
    pass_time()
    assert cluster.ask_who_i_am() == f"{unique}-a"
    with_user(control_plane, path, certificate(control_plane, f"{unique}-b"))
    pass_time()
    assert cluster.ask_who_i_am() == f"{unique}-b"


def test_a_certificate_that_the_kubeconfig_names_is_read_again_when_it_is_renewed(
    control_plane: ControlPlane, unique: str, tmp_path: Path, pass_time: Callable[[], None]
) -> None:
    names = [f"{unique}-a", f"{unique}-b"]
    pairs = [certificate(control_plane, name) for name in names]

    def install(pair: dict[str, Any]) -> None:
        for key, file in (("client-key", "tls.key"), ("client-certificate", "tls.crt")):
            write(tmp_path / file, Path(pair[key]).read_text())

    install(pairs[0])
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}  # relative to the kubeconfig
    cluster = Cluster.connect(with_user(control_plane, tmp_path / "config", user))
    assert cluster.ask_who_i_am() == names[0]
    install(pairs[1])
    pass_time()
    assert cluster.ask_who_i_am() == names[1]


def test_a_token_in_a_file_of_its_own_is_read_again(
    control_plane: ControlPlane, tmp_path: Path, pass_time: Callable[[], None], cluster: Cluster, unique: str
) -> None:
    from provisioner.cluster.resources import ResourceType
    from tests.cluster.test_credentials import ACCOUNTS

    cluster.create(ACCOUNTS, {"metadata": {"name": unique, "namespace": "default"}})
    requests = ResourceType("", "v1", "TokenRequest", f"serviceaccounts/{unique}/token", namespaced=True)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": unique}, "spec": {}}
    token = cluster.create(requests, body, namespace="default")["status"]["token"]
    write(tmp_path / "token", "expired")
    service = Cluster.connect(with_user(control_plane, tmp_path / "config", {"tokenFile": "token"}))
    with pytest.raises(Refused, match="Unauthorized"):
        service.ask_who_i_am()
    write(tmp_path / "token", token)
    pass_time()
    assert service.ask_who_i_am() == f"system:serviceaccount:default:{unique}"


def test_files_that_stay_as_they_are_are_not_read_again(
    control_plane: ControlPlane, unique: str, tmp_path: Path, pass_time: Callable[[], None]
) -> None:
    path = with_user(control_plane, tmp_path / "config", certificate(control_plane, unique))
    cluster = Cluster.connect(path)
    connected = cluster._transport
    before = connected._access.pool
    for _ in range(3):
        pass_time()
        cluster.ask_who_i_am()
    assert connected._access.pool is before
    os.utime(path)
    pass_time()
    cluster.ask_who_i_am()
    assert connected._access.pool is not before


USER = {"token": "the-new-token-of-it"}


def plain_kubeconfig(user: dict[str, Any]) -> str:
    content = {
        "apiVersion": "v1",
        "clusters": [{"cluster": {"server": "https://127.0.0.1:6443"}, "name": "c"}],
        "contexts": [{"context": {"cluster": "c", "user": "u"}, "name": "x"}],
        "current-context": "x",
        "kind": "Config",
        "users": [{"name": "u", "user": user}],
    }
    return yaml.safe_dump(content)


def test_no_part_of_a_kubeconfig_that_is_being_written_is_ever_used(tmp_path: Path) -> None:
    """Cut anywhere it may be good YAML: of nobody, or of half a token."""
    path, now, whole = tmp_path / "config", [0.0], plain_kubeconfig(USER)
    path.write_text(plain_kubeconfig({"token": "old"}))
    service = access.Access(lambda: access.load_configuration(path, None), path, clock=lambda: now[0])
    used = set()
    for length in range(len(whole)):
        path.write_text(whole[:length])
        now[0] += LOOK_SECONDS
        service.renew()
        used.add(service.configuration.api_key.get("BearerToken"))
    assert used == {"Bearer old"}
    path.write_text(whole)
    for _ in range(2):
        now[0] += LOOK_SECONDS
        service.renew()
    assert service.configuration.api_key == {"BearerToken": f"Bearer {USER['token']}"}


def test_one_whose_writer_died_half_way_makes_nobody_of_the_service_and_breaks_no_request(tmp_path: Path) -> None:
    path, now, whole = tmp_path / "config", [0.0], plain_kubeconfig(USER)
    path.write_text(plain_kubeconfig({"token": "old"}))
    service = access.Access(lambda: access.load_configuration(path, None), path, clock=lambda: now[0])
    for length in range(whole.index("token")):
        path.write_text(whole[:length])
        for _ in range(2):
            now[0] += LOOK_SECONDS
            service.renew()
    assert service.configuration.api_key == {"BearerToken": "Bearer old"}
