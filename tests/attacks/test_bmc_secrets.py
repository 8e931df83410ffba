"""Administrators write the Secrets of BMCs, as `rack register --bmc-secrets` does, and get at no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lab.control_plane.plane import ControlPlane
from provisioner.api import Rack, Server
from provisioner.api.machinery.errors import Refused
from provisioner.cli.main import provisioner
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS, of
from tests.people import bind, bind_in, kubeconfig_of, until

BMCS = "provisioner-bmcs"


@pytest.fixture(scope="module")
def registrar_kubeconfig(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rita's; she is an administrator, and may write the Secrets of BMCs."""
    path = kubeconfig_of(control_plane, tmp_path_factory.mktemp("rita"), "rita")
    admin, rita = Cluster.connect(control_plane.kubeconfig), Cluster.connect(path)
    bind(admin, "provisioner-administrator", "rita")
    bind_in(admin, BMCS, "provisioner-bmc-secrets", "rita")

    def may_write() -> bool:
        try:
            rita.create(SECRETS, secret("probe-bmc", server="probe"), dry_run=True)
        except Refused:
            return False
        return True

    until(may_write)
    return path


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster, unique: str) -> Iterator[None]:
    yield
    for kind, namespace in ((of(Server), None), (of(Rack), None), (SECRETS, BMCS)):
        for body in cluster.list(kind, namespace=namespace).items:
            if body["metadata"]["name"].startswith(unique):
                cluster.delete(kind, body["metadata"]["name"], namespace=namespace)


def secret(name: str, *, server: str | None = None, type_: str = "Opaque", **data: str) -> dict[str, Any]:
    labels = {"provisioner.dev/server": server} if server else {}
    metadata = {"name": name, "namespace": BMCS, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_, "stringData": data}


def register(kubeconfig: Path, unique: str, folder: Path, password: str) -> Result:
    digits = unique[1:]
    mac = f"52:54:{digits[0:2]}:{digits[2:4]}:{digits[4:6]}:01"
    listed = folder / "list.csv"
    listed.write_text(
        f"name,mac,bmc address,bmc user,bmc password\n{unique}-u01,{mac},https://{unique}.example,root,{password}\n"
    )
    arguments = ["rack", "register", str(listed), "--rack", unique, "--subnet", "10.99.0.0/24", "--bmc-secrets"]
    return CliRunner().invoke(provisioner, [*arguments, "--kubeconfig", str(kubeconfig)])


def test_an_administrator_registers_with_bmc_secrets_again_and_with_another_password(
    registrar_kubeconfig: Path, cluster: Cluster, unique: str, tmp_path: Path
) -> None:
    for password in ("first", "first", "second"):
        done = register(registrar_kubeconfig, unique, tmp_path, password)
        assert done.exit_code == 0, done.output
        assert password not in done.output
    written = cluster.get(SECRETS, f"{unique}-u01-bmc", namespace=BMCS)
    assert written["data"]["password"] == "c2Vjb25k"


def test_an_operator_writes_no_secret(operator: Cluster, unique: str) -> None:
    with pytest.raises(Refused, match="cannot create resource"):
        operator.create(SECRETS, secret(f"{unique}-bmc", server=unique, username="root", password="p"))


def test_who_writes_bmc_secrets_gets_at_no_other(registrar_kubeconfig: Path, cluster: Cluster, unique: str) -> None:
    rita = Cluster.connect(registrar_kubeconfig)
    token = secret(f"{unique}-bmc", server=unique, type_="kubernetes.io/service-account-token")
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
    cluster.create(SECRETS, token)
    cluster.create(SECRETS, secret(f"{unique}-slurm", username="root", token="t"))
    cluster.create(SECRETS, secret(f"{unique}-u02-bmc", username="root", password="p"))
    for name, patch in (
        (f"{unique}-bmc", {"annotations": {"a": "b"}}),
        (f"{unique}-slurm", {"annotations": {"a": "b"}}),
        (f"{unique}-u02-bmc", {"labels": {"provisioner.dev/server": f"{unique}-u02"}}),
    ):
        with pytest.raises(Refused, match="and no others"):
            rita.patch(SECRETS, name, {"metadata": patch}, namespace=BMCS)
        with pytest.raises(Refused, match="cannot get resource"):
            rita.get(SECRETS, name, namespace=BMCS)
        with pytest.raises(Refused, match="cannot delete resource"):
            rita.delete(SECRETS, name, namespace=BMCS)
    cluster.delete(SECRETS, f"{unique}-bmc", namespace=BMCS)
    for forged in (
        token,
        secret(f"{unique}-bmc", username="root", password="p"),
        secret(f"{unique}-other", server=unique, username="root", password="p"),
        secret(f"{unique}-bmc", server=unique, kubeconfig="k"),
    ):
        with pytest.raises(Refused, match="and no others"):
            rita.create(SECRETS, forged)
    with pytest.raises(Refused, match="cannot list resource"):
        rita.list(SECRETS, namespace=BMCS)
    with pytest.raises(Refused, match="cannot create resource"):
        rita.create(
            SECRETS, secret(f"{unique}-bmc", server=unique) | {"metadata": {"name": unique, "namespace": "default"}}
        )
