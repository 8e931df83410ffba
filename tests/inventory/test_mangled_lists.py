"""Packing lists of chassis with several nodes, of other tools, and what spreadsheets and typography made of them."""

from __future__ import annotations

import pytest

from provisioner.api.values import is_placeholder_serial, is_placeholder_uuid, parse_mac
from provisioner.inventory.duplicates import find_duplicates
from provisioner.inventory.lists.bmc_address import BmcAddress, read_bmc_address
from provisioner.inventory.lists.csv_list import read_csv
from provisioner.inventory.lists.entries import Entry, Mistake, PackingList
from provisioner.inventory.lists.yaml_list import read_yaml

ONE, TWO = "52:54:00:0a:00:20", "52:54:00:0a:00:21"


def read(text: str) -> tuple[PackingList, tuple[Mistake, ...]]:
    return read_csv(text, "r01.csv", rack="r01")


def servers(text: str) -> tuple[Entry, ...]:
    packing_list, mistakes = read(text)
    assert mistakes == ()
    return packing_list.entries


@pytest.mark.parametrize(
    "text",
    [
        f"Name,MAC,Chassis Serial Number\na,{ONE},C1\nb,{TWO},C1\n",
        f"Name,MAC,Chassis Serial Number,Node Serial Number\na,{ONE},C1,N1\nb,{TWO},C1,N2\n",
        f"Name,MAC,U,Enclosure S/N,BMC,BMC System ID\na,{ONE},10,C1,10.6.0.9,1\nb,{TWO},10,C1,10.6.0.9,2\n",
        f"Name,MAC,BMC,BMC MAC,BMC System ID\na,{ONE},10.6.0.9,52:54:00:0a:01:24,1\n"
        f"b,{TWO},10.6.0.9,52:54:00:0a:01:24,2\n",
    ],
    ids=["chassis", "chassis and nodes", "one BMC in one place", "one BMC's MAC"],
)
def test_nodes_of_one_chassis_share_what_is_the_chassiss(text: str) -> None:
    assert find_duplicates(servers(text), []) == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"Name,MAC,U\na,{ONE},10\nb,{TWO},10\n", "position u10 of rack r01"),
        (f"Name,MAC,U,Node S/N\na,{ONE},10,S1\nb,{TWO},10,S2\n", "position u10 of rack r01"),
        (f"Name,MAC,U,BMC\na,{ONE},10,10.6.0.1\nb,{TWO},10,10.6.0.2\n", "position u10 of rack r01"),
        (f"Name,MAC,U,S/N\na,{ONE},10,S1\nb,{TWO},10,\n", "position u10 of rack r01"),
        (f"Name,MAC,Chassis S/N,Node S/N\na,{ONE},C1,N1\nb,{TWO},C1,N1\n", "serial number N1"),
        (
            f"Name,MAC,BMC,BMC MAC\na,{ONE},10.6.0.1,52:54:00:0a:01:24\nb,{TWO},10.6.0.2,52:54:00:0a:01:24\n",
            "MAC address 52:54:00:0a:01:24",
        ),
        (
            f"Name,MAC,BMC,BMC MAC,BMC System ID\na,{ONE},10.6.0.9,{TWO},1\nb,{TWO},10.6.0.9,,2\n",
            f"MAC address {TWO}",
        ),
    ],
)
def test_what_tells_nodes_apart_is_still_demanded(text: str, what: str) -> None:
    mistakes = find_duplicates(servers(text), [])
    assert [mistake.observed.partition(" of Server a")[0] for mistake in mistakes] == [what]


def test_the_remedies_for_one_serial_number_of_several_nodes_work() -> None:
    text = f"Name,MAC,Serial\na,{ONE},S1\nb,{TWO},S1\n"
    (mistake,) = find_duplicates(servers(text), [])
    assert "--column chassis-serial-number=HEADER, and a column Node Serial Number" in mistake.remedy
    packing_list, mistakes = read_csv(
        text.replace("Serial\n", "Serial,Node Serial Number\n").replace("S1\nb", "S1,N1\nb"),
        "r01.csv",
        rack="r01",
        columns={"chassisSerialNumber": "Serial"},
    )
    assert (mistakes, find_duplicates(packing_list.entries, [])) == ((), ())
    assert [entry.spec.get("serialNumber") for entry in packing_list.entries] == ["N1", None]


def test_the_serial_number_of_a_chassis_with_one_node_is_that_nodes() -> None:
    entries = servers(f"Name,MAC,Chassis Serial Number\na,{ONE},C1\nb,{TWO},C2\n")
    assert [entry.spec["serialNumber"] for entry in entries] == ["C1", "C2"]


@pytest.mark.parametrize("head", ["#node,interface,mac,comments,disable", "# node, interface, mac"])
def test_a_header_behind_a_hash_counts_where_there_is_no_other(head: str) -> None:
    entries = servers(f'# made by a tool\n{head}\n"node01",,"{ONE}",,\n#"node03",,"{TWO}",,\n')
    assert [(entry.name, entry.spec["bootMACAddress"]) for entry in entries] == [("node01", ONE)]


def test_a_header_behind_a_hash_is_a_comment_beside_another() -> None:
    entries = servers(f"# Name,MAC,Serial\nName,MAC,S/N\na,{ONE},S1\n")
    assert [entry.name for entry in entries] == ["a"]


@pytest.mark.parametrize(
    ("header", "cell", "what"),
    [
        ("S/N", "5.2E+11", "a number"),
        ("S/N", "5,2E+11", "a number"),
        ("UUID", "4E+12", "a number"),
        ("U", "02-Jan", "a date"),
        ("U", "2. Jan", "a date"),
        ("U", "Jan-02", "a date"),
        ("U", "01.02.2026", "a date"),
        ("U", "2026-01-02 00:00:00", "a date"),
        ("Name", "3-Mrz-26", "a date"),
    ],
)
def test_what_a_spreadsheet_made_of_a_value_is_refused_with_its_place(header: str, cell: str, what: str) -> None:
    other = "Name" if header != "Name" else "S/N"
    _, mistakes = read(f'{header};{other};MAC\n"{cell}";x1;{ONE}\n')
    assert len(mistakes) == 1
    assert str(mistakes[0]).startswith(f"r01.csv:2, column {header}: {cell!r}, {what} that a spreadsheet made of it")
    assert "format the column as text" in str(mistakes[0])


@pytest.mark.parametrize(
    ("header", "cell", "field", "value"),
    [
        ("U", "7.0", "position", "u07"),
        ("U", "1-2", "position", "1-2"),
        ("U", "A-12", "position", "A-12"),
        ("U", "May", "position", "May"),
        ("S/N", "1E5", "serialNumber", "1E5"),
        ("S/N", "J12-3456-789", "serialNumber", "J12-3456-789"),
        ("S/N", "7MAR2026X", "serialNumber", "7MAR2026X"),
        ("IP", "10.80.0.7/24", "bootAddress", "10.80.0.7"),
    ],
)
def test_what_only_looks_like_it_is_taken(header: str, cell: str, field: str, value: str) -> None:
    (entry,) = servers(f"{header};Name;MAC\n{cell};x1;{ONE}\n")
    assert entry.spec[field] == value


PLACEHOLDERS = (
    "To Be Filled By O.E.M.",
    "to be filled by OEM",
    "Default string",
    "System Serial Number",
    "Chassis Serial Number",
    "Serial Number",
    "Not Specified",
    "0123456789",
    "123456789",
    "0",
    "00000000",
    "XXXXXXXXXX",
    "..........",
    "Unknown",
    "Invalid",
)


@pytest.mark.parametrize("serial", PLACEHOLDERS)
def test_a_vendors_placeholder_is_no_serial_number(serial: str) -> None:
    assert is_placeholder_serial(serial)
    packing_list, mistakes = read(f"Name;MAC;S/N\na;{ONE};{serial}\nb;{TWO};{serial}\n")
    assert mistakes == ()
    assert find_duplicates(packing_list.entries, []) == ()
    assert [entry.spec.get("serialNumber") for entry in packing_list.entries] == [None, None]
    assert packing_list.notes[0].startswith("r01.csv:2, column S/N: ")
    stored = {"kind": "Server", "metadata": {"name": "c"}, "spec": {"serialNumber": serial, "rackRef": "r09"}}
    registered = Entry("Server", "d", {"serialNumber": serial, "bootMACAddress": ONE}, packing_list.entries[0].origin)
    assert find_duplicates([registered], [stored]) == ()


@pytest.mark.parametrize("serial", ["S1", "X0", "00000001", "01234567890X", "ABC123", "SN1", "OEM7"])
def test_a_serial_number_is_no_placeholder(serial: str) -> None:
    assert not is_placeholder_serial(serial)


@pytest.mark.parametrize(
    "uuid",
    [
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
    ],
)
def test_a_vendors_placeholder_is_no_system_uuid(uuid: str) -> None:
    assert is_placeholder_uuid(uuid)
    packing_list, mistakes = read(f"Name;MAC;UUID\na;{ONE};{uuid}\nb;{TWO};{uuid}\n")
    assert mistakes == ()
    assert [entry.spec.get("systemUUID") for entry in packing_list.entries] == [None, None]
    assert len(packing_list.notes) == 2


def test_a_system_uuid_is_no_placeholder() -> None:
    assert not is_placeholder_uuid("4c4c4544-0042-4410-8056-b4c04f564432")


@pytest.mark.parametrize(
    ("text", "scheme", "address"),
    [
        ("10.90.0.11", "https", BmcAddress("https://10.90.0.11")),
        ("10.90.0.11/24", "https", BmcAddress("https://10.90.0.11")),
        ("fd00::12", "https", BmcAddress("https://[fd00::12]")),
        ("FD00:0::12", "ipmi", BmcAddress("ipmi://[fd00::12]")),
        ("fd00::12/64", "https", BmcAddress("https://[fd00::12]")),
        ("[fd00::12]:8443", "https", BmcAddress("https://[fd00::12]:8443")),
        ("https://fd00::12", "https", BmcAddress("https://[fd00::12]")),
        ("HTTPS://bmc.example/", "https", BmcAddress("https://bmc.example/")),
        ("ipmi://fd00::12", "https", BmcAddress("ipmi://[fd00::12]")),
        ("redfish://10.90.0.11", "https", BmcAddress("https://10.90.0.11")),
        ("redfish+http://10.90.0.11:8000/redfish/v1/Systems/1", "https", BmcAddress("http://10.90.0.11:8000", "1")),
        (
            "redfish-virtualmedia+https://10.90.0.11/redfish/v1/Systems/System.Embedded.1",
            "https",
            BmcAddress("https://10.90.0.11", "System.Embedded.1"),
        ),
        ("idrac-virtualmedia://10.90.0.11/redfish/v1/Systems/1/", "https", BmcAddress("https://10.90.0.11", "1")),
        ("ilo5-redfish://10.90.0.11", "ipmi", BmcAddress("https://10.90.0.11")),
        ("https://10.90.0.11/redfish/v1/Systems/Self", "https", BmcAddress("https://10.90.0.11", "Self")),
        ("https://10.90.0.11/redfish/v1", "https", BmcAddress("https://10.90.0.11/redfish/v1")),
        ("lanplus://10.90.0.11", "https", BmcAddress("ipmi://10.90.0.11")),
        ("libvirt://192.0.2.1/", "https", BmcAddress("libvirt://192.0.2.1/")),
    ],
)
def test_an_address_of_a_bmc_is_read_in_the_forms_of_other_tools(text: str, scheme: str, address: BmcAddress) -> None:
    assert read_bmc_address(text, scheme) == address


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("https://fd00::12", "https://[fd00::12]"),
        ("ipmi://fd00::12/", "ipmi://[fd00::12]/"),
        ("fd00::12", "[fd00::12]"),
        ("https://[fd00::12]:8443", "https://[fd00::12]:8443"),
        ("https://10.90.0.11", "https://10.90.0.11"),
    ],
)
def test_a_list_in_yaml_gets_its_brackets_too(written: str, address: str) -> None:
    bmc = f'{{address: "{written}"}}'
    packing_list, mistakes = read_yaml(f'servers: [{{name: a, bootMACAddress: "{ONE}", bmc: {bmc}}}]', "r01.yaml")
    assert mistakes == ()
    assert packing_list.entries[0].spec["bmc"] == {"address": address}


def test_a_system_that_the_address_names_is_the_bmcs_unless_a_column_says_another() -> None:
    url = "redfish://10.90.0.11/redfish/v1/Systems/7"
    entries = servers(f"Name;MAC;BMC;BMC System ID\na;{ONE};{url};\nb;{TWO};{url};8\n")
    assert [entry.spec["bmc"]["systemID"] for entry in entries] == ["7", "8"]


@pytest.mark.parametrize(
    "text",
    [
        "52–54–00–0a–00–20",
        "52‑54‑00‑0A‑00‑20",
        "52−54−00−0a−00−20",
        "52：54：00：0a：00：20",
        "52∶54∶00∶0a∶00∶20",
        "52:54:00:0a:00:20\u200b",
        "\u202a52:54:00:0a:00:20\u202c",
        "５２:５４:００:０a:００:２０",
        "52 54\u00a000 0a 00 20",
        "52_54_00_0a_00_20",
    ],
)
def test_a_mac_address_is_read_through_typography(text: str) -> None:
    assert parse_mac(text) == ONE
