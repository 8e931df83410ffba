"""`provisioner rack register` against a real API server."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from provisioner.api import Rack, Server
from provisioner.api.machinery.errors import NotFound
from provisioner.cli.service.rack import rack
from provisioner.cluster.resources import NAMESPACES, SECRETS, of

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane
    from provisioner.cluster.client import Cluster

GOLDEN = Path(__file__).parent.parent / "golden" / "inventory"

Register = Callable[..., Result]


@pytest.fixture
def digits() -> str:
    """Six hexadecimal digits that no other test uses, for MAC and serial numbers."""
    return uuid.uuid4().hex[:6]


@pytest.fixture
def register(control_plane: ControlPlane, tmp_path: Path) -> Register:
    def run(text: str | bytes, *options: str, name: str = "list.yaml") -> Result:
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        arguments = ["register", str(file), "--kubeconfig", str(control_plane.kubeconfig), *options]
        return CliRunner().invoke(rack, arguments, catch_exceptions=False)

    return run


@pytest.fixture
def tidy(cluster: Cluster, unique: str) -> Iterator[None]:
    yield
    for kind in (Server, Rack):
        for body in cluster.list(of(kind)).items:
            if body["metadata"]["name"].startswith(unique):
                cluster.delete(of(kind), body["metadata"]["name"])


def mac(digits: str, number: int) -> str:
    return ":".join(["52", *(digits[i : i + 2] for i in (0, 2, 4)), "00", f"{number:02x}"])


def two_servers(unique: str, digits: str, *, bmc: str = "one", mtu: int = 1500) -> str:
    return f"""\
rack:
  name: {unique}
  subnets: [{{name: boot, cidr: 10.80.0.0/24, gateway: 10.80.0.1, mtu: {mtu}}}]
servers:
- {{name: {unique}-u01, position: u01, bootMACAddress: "{mac(digits, 1)}", bmc: {{address: "https://{digits}-{bmc}"}}}}
- {{name: {unique}-u02, position: u02, bootMACAddress: "{mac(digits, 2)}", serialNumber: {digits}}}
"""


def golden(text: str, name: str, unique: str, digits: str, tmp_path: Path) -> None:
    """Compare with a golden file, in which the names of this test are general ones."""
    general = text.replace(unique, "r01").replace(str(tmp_path) + "/", "").replace(digits, "c0ffee")
    general = general.replace(":".join(digits[i : i + 2] for i in (0, 2, 4)), "c0:ff:ee")
    assert general == (GOLDEN / name).read_text()


@pytest.mark.usefixtures("tidy")
def test_a_list_is_registered_shown_and_registered_again_without_change(
    register: Register, cluster: Cluster, unique: str, digits: str, tmp_path: Path
) -> None:
    text = two_servers(unique, digits)

    rehearsal = register(text, "--dry-run")
    assert rehearsal.exit_code == 0
    golden(rehearsal.output, "register-dry-run.txt", unique, digits, tmp_path)
    with pytest.raises(NotFound):
        cluster.read(Rack, unique)

    first = register(text)
    assert first.exit_code == 0
    assert "3 written, 0 failed, 0 unchanged" in first.output
    server = cluster.read(Server, f"{unique}-u01")
    assert (server.spec.acceptance, server.spec.rack_ref) == ("Accepted", unique)

    again = register(text)
    assert again.exit_code == 0
    golden(again.output, "register-unchanged.txt", unique, digits, tmp_path)

    changed = register(two_servers(unique, digits, bmc="two", mtu=9000).replace("position: u02, ", ""))
    assert changed.exit_code == 0
    golden(changed.output, "register-update.txt", unique, digits, tmp_path)
    assert cluster.read(Server, f"{unique}-u02").spec.position is None


@pytest.mark.usefixtures("tidy")
def test_a_german_spreadsheets_list_is_registered_as_it_is(
    register: Register, cluster: Cluster, unique: str, digits: str
) -> None:
    """Windows-1252, semicolons, commas in a remark, MAC addresses as Cisco writes them, a BMC without TLS."""
    dotted = mac(digits, 1).replace(":", "").upper()
    dotted = ".".join(dotted[i : i + 4] for i in (0, 4, 8))
    text = (
        f"Packliste für Köln;;;;;\r\n\r\n"
        "Höheneinheit;Seriennummer;MAC-Adresse (PXE);BMC-IP-Adresse;BMC plain HTTP;Bemerkung\r\n"
        f'12;="{digits}";{dotted};{digits}-bmc;ja;Größe, Gewicht, Farbe, Öse, Höhe, Tür\r\n;;;;;\r\n'
    ).encode("cp1252")
    options = ("--rack", unique, "--subnet", "10.80.0.0/24")
    first = register(text, *options, name="liste.csv")
    assert (first.exit_code, "2 written, 0 failed, 0 unchanged" in first.output) == (0, True), first.output
    spec = cluster.read(Server, f"{unique}-u12").spec
    assert (spec.boot_mac_address, spec.serial_number) == (mac(digits, 1), digits)
    assert spec.bmc is not None
    assert (spec.bmc.address, spec.bmc.allow_plain_http) == (f"http://{digits}-bmc", True)
    again = register(text, *options, name="liste.csv")
    assert "0 written, 0 failed, 2 unchanged" in again.output


@pytest.mark.usefixtures("tidy")
def test_registering_again_takes_back_no_acceptance(
    register: Register, cluster: Cluster, unique: str, digits: str
) -> None:
    text = two_servers(unique, digits)
    register(text, "--pending")
    assert cluster.read(Server, f"{unique}-u01").spec.acceptance == "Pending"
    cluster.patch(of(Server), f"{unique}-u01", {"spec": {"acceptance": "Accepted"}}, manager="somebody")
    assert register(text).exit_code == 0
    assert register(text).exit_code == 0
    assert cluster.read(Server, f"{unique}-u01").spec.acceptance == "Accepted"
    assert cluster.read(Server, f"{unique}-u02").spec.acceptance == "Pending"
    register(text, "--accept")
    assert cluster.read(Server, f"{unique}-u02").spec.acceptance == "Accepted"


@pytest.mark.usefixtures("tidy")
def test_what_others_set_stays(register: Register, cluster: Cluster, unique: str, digits: str) -> None:
    text = two_servers(unique, digits)
    register(text)
    cluster.patch(of(Server), f"{unique}-u01", {"spec": {"nodePoolRef": "gpu"}}, manager="somebody")
    assert "3 unchanged" in register(text).output
    assert cluster.read(Server, f"{unique}-u01").spec.node_pool_ref == "gpu"


@pytest.mark.usefixtures("tidy")
def test_duplicates_are_refused_and_nothing_is_written(
    register: Register, cluster: Cluster, unique: str, digits: str
) -> None:
    register(two_servers(unique, digits))
    text = f"""\
rack: {unique}
servers:
- {{name: {unique}-u03, position: u02, bootMACAddress: "{mac(digits, 3)}"}}
- {{name: {unique}-u04, bootMACAddress: "{mac(digits, 1)}"}}
- {{name: {unique}-u05, bootMACAddress: "{mac(digits, 3)}", serialNumber: {digits.upper()}}}
"""
    refused = register(text)
    assert refused.exit_code == 2
    for words in (
        f"list.yaml:5: MAC address {mac(digits, 3)} of Server {unique}-u03",
        f"position u02 of rack {unique} of Server {unique}-u03",
        f"is also that of Server {unique}-u02 (in the cluster)",
        f"is also that of Server {unique}-u01 (in the cluster)",
        f"serial number {digits.upper()} of Server {unique}-u05",
        "4 mistakes; nothing was registered",
    ):
        assert words in refused.output
    with pytest.raises(NotFound):
        cluster.read(Server, f"{unique}-u03")


@pytest.mark.usefixtures("tidy")
def test_what_the_api_server_refuses_is_a_mistake_with_its_line(register: Register, unique: str, digits: str) -> None:
    text = two_servers(unique, digits, mtu=1).replace(f"https://{digits}-one", "http://10.90.0.1")
    refused = register(text)
    assert refused.exit_code == 2
    assert "list.yaml:2: APPLY Rack" in refused.output
    assert "list.yaml:5: APPLY Server" in refused.output
    assert "readable on the way: write https://" in refused.output


def test_notes_are_shown_beside_mistakes(register: Register) -> None:
    text = "Name,MAC,Colour\na,52:54:00,red\n#b,52:54:00:00:00:01,blue\n"
    shown = register(text, "--rack", "r01", name="list.csv")
    assert shown.exit_code == 2
    assert "1 mistake; nothing was registered" in shown.output
    assert "note: columns not used: Colour" in shown.output
    assert "list.csv:3: skipped as a comment" in shown.output
    as_json = json.loads(register(text, "--rack", "r01", "--output", "json", name="list.csv").stdout)
    assert as_json["notes"][-1] == "columns not used: Colour"
    assert len(as_json["mistakes"]) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("rackRef: nowhere", "is in rack nowhere, which does not exist"),
        ("subnetName: dmz", "is in subnet dmz, which rack {unique} does not have"),
        ("bootAddress: 10.99.0.7", "10.99.0.7 is outside subnet boot (10.80.0.0/24)"),
        ("bootAddress: 10.80.0.253", "10.80.0.253 is the gateway of subnet boot"),
        ("architecture: arm64, dpu: {hostRef: nobody}", "sits in Server nobody, which is neither in the file nor"),
    ],
)
@pytest.mark.usefixtures("tidy")
def test_what_does_not_exist_is_named(register: Register, unique: str, digits: str, fields: str, words: str) -> None:
    # A gateway that no other test has given to a server: those of one run share a cluster.
    text = two_servers(unique, digits).replace("10.80.0.1,", "10.80.0.253,").replace("position: u01", fields)
    refused = register(text)
    assert refused.exit_code == 2
    assert words.format(unique=unique) in refused.output
    assert "1 mistake;" in refused.output


def vendors_csv(digits: str) -> str:
    return (
        "U position;Serial Number;Node MAC;BMC IP;BMC User;BMC Password\r\n"
        f"1;{digits}A;{mac(digits, 1).upper()};{digits}-1;root;hunter2\r\n"
        f"2;{digits}B;{mac(digits, 2).replace(':', '-')};{digits}-2;root;hunter3\r\n"
    )


@pytest.mark.usefixtures("tidy")
def test_a_vendors_csv_registers_a_new_rack_with_one_command(
    register: Register, cluster: Cluster, unique: str, digits: str
) -> None:
    options = ["--rack", unique, "--subnet", "10.80.0.0/24", "--gateway", "10.80.0.1", "--dns", "10.80.0.1"]
    text = vendors_csv(digits)
    refused = register(text, *options, name="list.csv")
    assert refused.exit_code == 2
    assert "list.csv:1, column BMC Password: a column of passwords" in refused.output

    if not any(body["metadata"]["name"] == "provisioner-bmcs" for body in cluster.list(NAMESPACES).items):
        cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "provisioner-bmcs"}})
    done = register(text, *options, "--bmc-secrets", name="list.csv")
    assert done.exit_code == 0, done.output
    assert "hunter" not in done.output
    assert cluster.read(Rack, unique).spec.subnets[0].dns_servers == ("10.80.0.1",)
    server = cluster.read(Server, f"{unique}-u02")
    assert server.spec.bmc is not None
    assert (server.spec.bmc.address, server.spec.bmc.credentials_name) == (f"https://{digits}-2", f"{unique}-u02-bmc")
    data = cluster.get(SECRETS, f"{unique}-u02-bmc", namespace="provisioner-bmcs")["data"]
    assert {key: base64.b64decode(value).decode() for key, value in data.items()} == {
        "username": "root",
        "password": "hunter3",
    }

    again = register(text.replace("hunter3", "hunter4"), *options, "--bmc-secrets", name="list.csv")
    assert f"~ Secret {unique}-u02-bmc\n    data.password: *** -> ***" in again.output
    assert "1 written, 0 failed, 4 unchanged" in again.output

    wider = register(text, *options[:3], "10.80.0.0/16", "--bmc-secrets", name="list.csv")
    assert wider.exit_code == 2
    assert "exists already, with other subnets[boot].cidr" in wider.output


@pytest.mark.usefixtures("tidy")
def test_a_new_rack_gets_a_discovery_range(register: Register, cluster: Cluster, unique: str, digits: str) -> None:
    text = f"Name,MAC\n{unique}-u01,{mac(digits, 1)}\n"
    options = ["--rack", unique, "--subnet", "10.80.0.0/24", "--discovery-range"]
    outside = register(text, *options, "10.80.1.240-10.80.1.250", name="list.csv")
    assert outside.exit_code == 2
    assert "discovery range 10.80.1.240 is not a host address" in outside.output
    done = register(text, *options, "10.80.0.240-10.80.0.250", name="list.csv")
    assert done.exit_code == 0, done.output
    (subnet,) = cluster.read(Rack, unique).spec.subnets
    assert (subnet.discovery_range_start, subnet.discovery_range_end) == ("10.80.0.240", "10.80.0.250")
    assert "0 written" in register(text, *options, "10.80.0.240-10.80.0.250", name="list.csv").output


@pytest.mark.usefixtures("tidy")
def test_a_new_rack_gives_servers_addresses_of_a_range_alone(
    register: Register, cluster: Cluster, unique: str, digits: str
) -> None:
    text = f"Name,MAC\n{unique}-u01,{mac(digits, 1)}\n"
    options = ["--rack", unique, "--subnet", "10.80.0.0/24", "--range"]
    outside = register(text, *options, "10.80.1.20-10.80.1.200", name="list.csv")
    assert outside.exit_code == 2
    done = register(text, *options, "10.80.0.20-10.80.0.200", name="list.csv")
    assert done.exit_code == 0, done.output
    (subnet,) = cluster.read(Rack, unique).spec.subnets
    assert (subnet.range_start, subnet.range_end) == ("10.80.0.20", "10.80.0.200")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--range", "10.80.0.20-10.80.0.30"], "give --subnet CIDR too"),
        (["--subnet", "10.80.0.0/24", "--range", "10.80.0.20"], "it has no end"),
        (["--subnet", "10.80.0.0/24", "--discovery-range", "10.80.0.240"], "it has no end"),
        (["--subnet", "10.80.0.0/24", "--discovery-range", "10.80.0.9-10.80.0.8"], "its start comes after its end"),
        (["--subnet", "10.80.0.0/24", "--discovery-range", "240-250"], "write START-END, such as"),
        (["--discovery-range", "10.80.0.8-10.80.0.9"], "give --subnet CIDR too"),
        (["--gateway", "10.80.0.1"], "give --subnet CIDR too"),
    ],
)
def test_a_subnet_that_cannot_be_meant_is_refused_with_what_to_write(
    tmp_path: Path, options: list[str], words: str
) -> None:
    file = tmp_path / "list.csv"
    file.write_text("MAC\n52:54:00:00:00:01\n")
    done = CliRunner().invoke(rack, ["register", str(file), "--rack", "r01", *options])
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


@pytest.mark.usefixtures("tidy")
def test_json_output_has_every_step(register: Register, unique: str, digits: str) -> None:
    answer: dict[str, Any] = json.loads(register(two_servers(unique, digits), "--dry-run", "-o", "json").output)
    assert [(step["action"], step["kind"], step["name"]) for step in answer["steps"]] == [
        ("create", "Rack", unique),
        ("create", "Server", f"{unique}-u01"),
        ("create", "Server", f"{unique}-u02"),
    ]
    assert {"field": "position", "before": None, "after": "u01"} in answer["steps"][1]["changes"]


@pytest.mark.usefixtures("tidy")
def test_a_machine_that_was_switched_on_first_gets_its_name(
    register: Register, cluster: Cluster, unique: str, digits: str
) -> None:
    unknown = "unknown-" + mac(digits, 2).replace(":", "")
    body = {"metadata": {"name": unknown}, "spec": {"bootMACAddress": mac(digits, 2)}}
    cluster.create(of(Server), {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Server"} | body)
    done = register(two_servers(unique, digits))
    assert f"- Server {unknown}: it is Server {unique}-u02 now" in done.output
    with pytest.raises(NotFound):
        cluster.read(Server, unknown)


@pytest.mark.usefixtures("tidy")
def test_columns_are_mapped_on_the_command_line_and_kept_for_the_vendors_next_list(
    register: Register, cluster: Cluster, unique: str, digits: str, tmp_path: Path
) -> None:
    rack_options = ["--rack", unique, "--subnet", "10.80.0.0/24"]
    text = f"Gerätekennung;Netz (PXE)\n{unique}-u01;{mac(digits, 1)}\n"
    refused = register(text, *rack_options, name="list.csv")
    assert refused.exit_code == 2
    assert "headers not understood: 'Gerätekennung', 'Netz (PXE)'" in refused.output
    assert "\n    serial " in refused.output
    kept = tmp_path / "vendor.yaml"
    mapped = ["--column", "mac=Netz (PXE)", "--column", "name=Gerätekennung", "--save-columns", str(kept)]
    assert register(text, *rack_options, *mapped, name="list.csv").exit_code == 0
    assert cluster.read(Server, f"{unique}-u01").spec.boot_mac_address == mac(digits, 1)

    text = text.replace("u01", "u02").replace(mac(digits, 1), mac(digits, 2))
    assert register(text, *rack_options, "--columns", str(kept), name="list.csv").exit_code == 0
    assert cluster.read(Server, f"{unique}-u02").spec.boot_mac_address == mac(digits, 2)


@pytest.mark.parametrize(
    ("option", "words"),
    [("mac", "write FIELD=HEADER"), ("mac=", "write FIELD=HEADER"), ("weight=kg", "FIELD is one of")],
)
def test_a_column_that_maps_nothing_is_refused_with_what_to_write(tmp_path: Path, option: str, words: str) -> None:
    file = tmp_path / "list.csv"
    file.write_text("MAC\n52:54:00:00:00:01\n")
    done = CliRunner().invoke(rack, ["register", str(file), "--rack", "r01", "--column", option])
    assert done.exit_code == 2
    assert words in done.output


def test_who_interrupts_while_it_is_read_what_is_registered_is_told_that_too(
    register: Register, monkeypatch: pytest.MonkeyPatch, unique: str, digits: str
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("provisioner.cluster.client.Cluster.list", interrupted)
    result = register(two_servers(unique, digits))
    assert (result.exit_code, "Run the same command again" in result.stderr) == (130, True)
