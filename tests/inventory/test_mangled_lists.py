"""Packing lists of chassis with several nodes, of other tools, and what spreadsheets and typography made of them."""

from __future__ import annotations

import pytest

from provisioner.api.machinery.values import is_placeholder_serial, is_placeholder_uuid, parse_mac
from provisioner.inventory.duplicates import find_duplicates
from provisioner.inventory.lists.bmc_address import BmcAddress, read_bmc_address
from provisioner.inventory.lists.cells import read_uuid
from provisioner.inventory.lists.csv_list import read_csv
from provisioner.inventory.lists.entries import ListEntry, Mistake, PackingList
from provisioner.inventory.lists.yaml_list import read_yaml

ONE, TWO = "52:54:00:0a:00:20", "52:54:00:0a:00:21"


def read(text: str) -> tuple[PackingList, tuple[Mistake, ...]]:
    return read_csv(text, "r01.csv", rack="r01")


def servers(text: str) -> tuple[ListEntry, ...]:
    packing_list, mistakes = read(text)
    assert mistakes == ()
    return packing_list.entries


@pytest.mark.parametrize(
    "text",
    [
        f"Name,MAC,Chassis Serial Number\na,{ONE},C1\nb,{TWO},C1\n",
        f"Name,MAC,Chassis Serial Number,Node Serial Number\na,{ONE},C1,N1\nb,{TWO},C1,N2\n",
        f"Name,MAC,U,Chassis S/N,Node S/N,BMC\na,{ONE},10,C1,N1,10.6.0.1\nb,{TWO},10,C1,N2,10.6.0.2\n",
        f"Name,MAC,U,Enclosure S/N,BMC,BMC System ID\na,{ONE},10,C1,10.6.0.9,1\nb,{TWO},10,C1,10.6.0.9,2\n",
        f"Name,MAC,BMC,BMC MAC,BMC System ID\na,{ONE},10.6.0.9,52:54:00:0a:01:24,1\n"
        f"b,{TWO},10.6.0.9,52:54:00:0a:01:24,2\n",
    ],
    ids=["chassis", "chassis and nodes", "own BMCs in one place", "one BMC in one place", "one BMC's MAC"],
)
def test_nodes_of_one_chassis_share_what_is_the_chassiss(text: str) -> None:
    assert find_duplicates(servers(text), []) == ((), ())


@pytest.mark.parametrize(
    "text",
    [
        f"Name,MAC,U,Node S/N\na,{ONE},10,S1\nb,{TWO},10,S2\n",
        f"Name,MAC,U,BMC\na,{ONE},10,10.6.0.1\nb,{TWO},10,10.6.0.2\n",
        f"Name,MAC,U,S/N,BMC\na,{ONE},10,S1,\nb,{TWO},10,,10.6.0.2\n",
    ],
    ids=["serial numbers", "BMCs", "a serial number and a BMC"],
)
def test_servers_that_something_tells_apart_may_be_at_one_position_which_is_noted(text: str) -> None:
    assert find_duplicates(servers(text), []) == (
        (),
        (
            "Server a (r01.csv:2) and Server b (r01.csv:3) are at position u10 of rack r01: if they are nodes of one "
            "chassis, add a column Chassis Serial Number (annotation provisioner.dev/chassis-serial-number); if not, "
            "correct the position",
        ),
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"Name,MAC,U\na,{ONE},10\nb,{TWO},10\n", "position u10 of rack r01"),
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
    mistakes, _ = find_duplicates(servers(text), [])
    assert [mistake.observed.partition(" of Server a")[0] for mistake in mistakes] == [what]


def test_the_remedies_for_one_serial_number_of_several_nodes_work() -> None:
    text = f"Name,MAC,Serial\na,{ONE},S1\nb,{TWO},S1\n"
    (mistake,) = find_duplicates(servers(text), []).mistakes
    assert "--column chassis-serial-number=HEADER, and a column Node Serial Number" in mistake.remedy
    packing_list, mistakes = read_csv(
        text.replace("Serial\n", "Serial,Node Serial Number\n").replace("S1\nb", "S1,N1\nb"),
        "r01.csv",
        rack="r01",
        columns={"chassisSerialNumber": "Serial"},
    )
    assert (mistakes, find_duplicates(packing_list.entries, [])) == ((), ((), ()))
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
        ("U", "01.02.26", "a date"),
        ("U", "2/1/26", "a date"),
        ("U", "2026/02/01", "a date"),
        ("U", "12:00:00", "a time"),
        ("S/N", "123456789012.00", "a number"),
        ("S/N", "5.5E3", "a number"),
        ("Chassis S/N", "5.5E+11", "a number"),
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
        ("U", "1/2", "position", "1/2"),
        ("S/N", "1234-5-6", "serialNumber", "1234-5-6"),
        ("S/N", "4711/5/6", "serialNumber", "4711/5/6"),
        ("Rack", "1.2.10", "rackRef", "1-2-10"),
        ("S/N", "1E5", "serialNumber", "1E5"),
        ("S/N", "123456789012.01", "serialNumber", "123456789012.01"),
        ("UUID", "{4C4C4544-0042-4410-8056-B4C04F564432}", "systemUUID", "4c4c4544-0042-4410-8056-b4c04f564432"),
        ("UUID", "4C4C4544004244108056B4C04F564432", "systemUUID", "4c4c4544-0042-4410-8056-b4c04f564432"),
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
    assert find_duplicates(packing_list.entries, []) == ((), ())
    assert [entry.spec.get("serialNumber") for entry in packing_list.entries] == [None, None]
    assert packing_list.notes[0].startswith("r01.csv:2, column S/N: ")
    stored = {"kind": "Server", "metadata": {"name": "c"}, "spec": {"serialNumber": serial, "rackRef": "r09"}}
    registered = ListEntry(
        "Server", "d", {"serialNumber": serial, "bootMACAddress": ONE}, packing_list.entries[0].origin
    )
    assert find_duplicates([registered], [stored]) == ((), ())


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
        "03000200040005000006000700080009",
        "{00000000-0000-0000-0000-000000000000}",
        "Not Settable",
    ],
)
def test_a_vendors_placeholder_is_no_system_uuid(uuid: str) -> None:
    assert is_placeholder_uuid(read_uuid(uuid))
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
        ("https://bmc.example:65535", "https", BmcAddress("https://bmc.example:65535")),
        ("10-90-0-11.bmc.example", "https", BmcAddress("https://10-90-0-11.bmc.example")),
    ],
)
def test_an_address_of_a_bmc_is_read_in_the_forms_of_other_tools(text: str, scheme: str, address: BmcAddress) -> None:
    assert read_bmc_address(text, scheme) == address


@pytest.mark.parametrize(
    ("written", "bmc"),
    [
        ("https://fd00::12", {"address": "https://[fd00::12]"}),
        ("ipmi://fd00::12/", {"address": "ipmi://[fd00::12]/", "protocol": "IPMI"}),
        ("fd00::12", {"address": "https://[fd00::12]"}),
        ("https://[fd00::12]:8443", {"address": "https://[fd00::12]:8443"}),
        ("https://10.90.0.11", {"address": "https://10.90.0.11"}),
        (" 10.90.0.11/24 ", {"address": "https://10.90.0.11"}),
        ("ilo5://10.90.0.13", {"address": "https://10.90.0.13"}),
        ("redfish+https://10.90.0.13/redfish/v1/Systems/1", {"address": "https://10.90.0.13", "systemID": "1"}),
    ],
)
def test_a_list_in_yaml_has_the_forms_of_other_tools_too(written: str, bmc: dict[str, str]) -> None:
    text = f'servers: [{{name: a, bootMACAddress: "{ONE}", bmc: {{address: "{written}"}}}}]'
    packing_list, mistakes = read_yaml(text, "r01.yaml")
    assert mistakes == ()
    assert packing_list.entries[0].spec["bmc"] == bmc


@pytest.mark.parametrize(
    ("defaults", "address"),
    [
        ("protocol: IPMI", "ipmi://10.90.0.11"),
        ("protocol: Redfish", "https://10.90.0.11"),
        ("allowPlainHTTP: true", "http://10.90.0.11"),
    ],
)
def test_what_the_defaults_in_yaml_say_of_bmcs_tells_the_scheme(defaults: str, address: str) -> None:
    text = f'servers: [{{name: a, bootMACAddress: "{ONE}", bmc: {{address: 10.90.0.11}}}}]\n'
    text += f"defaults: {{bmc: {{{defaults}}}}}"
    packing_list, mistakes = read_yaml(text, "r01.yaml")
    assert mistakes == ()
    assert packing_list.entries[0].spec["bmc"]["address"] == address


BAD_ADDRESSES = (
    ("10.90.0. 1", "'10.90.0. 1' has a space in it"),
    ("10.90.0.1, 10.90.0.2", "'10.90.0.1, 10.90.0.2' has a space in it"),
    ("https://root:calvin@10.90.0.1", "https://***@…, with credentials"),
    ("root:calvin@10.90.0.1", "***@…, with credentials"),
    ("redfish://root:calvin＠10.90.0.1", "***@…, with credentials"),
    ("fe80::1%eth0", "'fe80::1%eth0' has a zone"),
    ("https://[fe80::1%25eth0]", "'https://[fe80::1%25eth0]' has a zone"),
    ("10.90.0.256", "'10.90.0.256' is no IPv4 address"),
    ("10.9", "'10.9' is no IPv4 address"),
    ("010.090.000.001", "'010.090.000.001' is no IPv4 address"),
    ("ipmi://10.90.0", "'ipmi://10.90.0' is no IPv4 address"),
    ("192168100101", "'192168100101' is no IPv4 address; a spreadsheet may have taken its dots"),
    ("10.90.0.1:65536", "'10.90.0.1:65536' has a port 65536"),
    ("10.90.0.1:0", "'10.90.0.1:0' has a port 0"),
    ("10.90.0.1:", "'10.90.0.1:' has no port after its colon"),
    ("[fd00::12]:x", "'[fd00::12]:x' has a port x"),
    ("[fd00::12]8443", "'[fd00::12]8443' is no IPv6 address"),
    ("52:54:00:cc:00:12", "'52:54:00:cc:00:12' is no IPv6 address"),
    ("https://", "'https://' has no host"),
    ("bmc_1", "'bmc_1' has a host that is neither a name nor an address"),
    ("libvirt://192.0.2.1/", "'libvirt://192.0.2.1/' has a scheme libvirt that is not known"),
)


def test_every_bad_address_of_a_bmc_in_csv_is_told_at_once_with_line_and_column() -> None:
    rows = [f'a{n},52:54:00:0b:00:{n:02x},"{address}"\n' for n, (address, _) in enumerate(BAD_ADDRESSES)]
    _, mistakes = read("Name,MAC,iLO IP\n" + "".join(rows))
    assert len(mistakes) == len(BAD_ADDRESSES)
    for line, ((_, words), mistake) in enumerate(zip(BAD_ADDRESSES, mistakes, strict=True), 2):
        assert str(mistake).startswith(f"r01.csv:{line}, column iLO IP: {words}")
    assert "calvin" not in repr(mistakes)


def test_every_bad_address_of_a_bmc_in_yaml_is_told_at_once_with_its_line() -> None:
    rows = [
        f'- {{name: a{n}, bootMACAddress: "52:54:00:0b:00:{n:02x}", bmc: {{address: "{address}"}}}}\n'
        for n, (address, _) in enumerate(BAD_ADDRESSES)
    ]
    _, mistakes = read_yaml("servers:\n" + "".join(rows), "r01.yaml")
    assert len(mistakes) == len(BAD_ADDRESSES)
    for line, ((_, words), mistake) in enumerate(zip(BAD_ADDRESSES, mistakes, strict=True), 2):
        assert str(mistake).startswith(f"r01.yaml:{line}: server.bmc.address {words}")
    assert "calvin" not in repr(mistakes)


def test_an_address_with_a_password_in_the_column_of_mac_addresses_is_not_shown() -> None:
    _, mistakes = read(f"Name;MAC;BMC MAC\na;{ONE};https://root:calvin@10.90.0.1\n")
    assert [mistake.observed for mistake in mistakes] == ["***@… is no MAC address"]


def test_an_address_with_a_password_in_place_of_a_bmc_is_not_shown() -> None:
    text = f'servers: [{{name: a, bootMACAddress: "{ONE}", bmc: "https://root:calvin@10.90.0.1"}}]'
    _, mistakes = read_yaml(text, "r01.yaml")
    assert [mistake.observed for mistake in mistakes] == ["server.bmc is '***@…'"]


ERRORS = ("#N/A", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NUM!", "#NULL!", "#NV", "#BEZUG!")


@pytest.mark.parametrize("error", ERRORS)
def test_a_row_that_begins_with_an_error_of_a_spreadsheet_is_a_mistake_and_no_comment(error: str) -> None:
    _, mistakes = read(f"S/N,Name,MAC\n{error},a,{ONE}\nS2,b,{TWO}\n")
    assert [str(mistake) for mistake in mistakes] == [
        f"r01.csv:2, column S/N: {error!r}, an error of a spreadsheet, expected the value as it was written; "
        "correct the formula, or fill in the value itself"
    ]


@pytest.mark.parametrize(
    "header", ["S/N", "MAC", "MAC 2", "BMC IP", "U", "Rack", "Pool", "Arch", "UUID", "IP", "BMC MAC"]
)
@pytest.mark.parametrize("cell", ["#N/A", "=A1&B1"])
def test_what_a_spreadsheet_did_not_compute_is_a_mistake_in_every_column(header: str, cell: str) -> None:
    columns = {"Name": "a", "MAC": ONE, header: cell}
    _, mistakes = read(f"{','.join(columns)}\n{','.join(columns.values())}\n")
    assert [str(mistake.origin) for mistake in mistakes] == [f"r01.csv:2, column {header}"]
    assert mistakes[0].observed.startswith(repr(cell))


def test_a_formula_that_may_hold_a_password_is_not_shown() -> None:
    _, mistakes = read(f'Name;MAC;BMC\na;{ONE};"=HYPERLINK(""https://root:calvin@10.90.0.1"")"\n')
    assert [mistake.observed for mistake in mistakes] == ["a formula of a spreadsheet"]


def test_a_password_may_begin_as_a_formula() -> None:
    packing_list, mistakes = read_csv(
        f"Name,MAC,BMC,BMC Password\na,{ONE},10.6.0.1,=A1\n", "r01.csv", rack="r01", take_passwords=True
    )
    assert mistakes == ()
    (entry,) = packing_list.entries
    assert entry.credentials is not None
    assert entry.credentials.password.reveal() == "=A1"


def test_a_column_that_is_not_used_may_hold_errors_of_a_spreadsheet() -> None:
    assert [entry.name for entry in servers(f"Price,Name,MAC\n#REF!,a,{ONE}\n")] == ["a"]


def test_a_comment_that_may_have_been_a_server_has_a_note_and_others_have_none() -> None:
    text = (
        f"# made, by, a, tool\nName,MAC,S/N\n# returned to the vendor\n#a,{ONE},S1\nb,{TWO},S2\n#c,,\n# Name,MAC,S/N\n"
    )
    packing_list, mistakes = read(text)
    assert mistakes == ()
    assert [entry.name for entry in packing_list.entries] == ["b"]
    assert packing_list.notes == (
        "r01.csv:4: skipped as a comment, for it begins with #; it has as many cells as the header",
    )


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


@pytest.mark.parametrize("cell", ["1122334455", "0", "52540000001"])
def test_of_a_mac_address_of_too_few_digits_a_spreadsheet_may_have_cut_zeros(cell: str) -> None:
    _, mistakes = read(f"Name;MAC;BMC MAC\na;{ONE};{cell}\n")
    assert [str(mistake) for mistake in mistakes] == [
        f"r01.csv:2, column BMC MAC: MAC address {cell!r} is not six bytes; a spreadsheet may have cut zeros at its "
        "front, expected a MAC address; format the column as text, and fill it in again"
    ]


def test_a_mac_address_of_twelve_digits_is_taken() -> None:
    assert servers("Name;MAC\na;001122334455\n")[0].spec["bootMACAddress"] == "00:11:22:33:44:55"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("serialNumber", "5.2E+11", "server.serialNumber is '5.2E+11', a number that a spreadsheet made of it"),
        ("serialNumber", '"#N/A"', "server.serialNumber is '#N/A', an error of a spreadsheet"),
        ("rackRef", "=A1", "server.rackRef is '=A1', a formula of a spreadsheet"),
        ("position", "2026-02-01", "server.position is '2026-02-01', a date that a spreadsheet made of it"),
        ("position", "12:00:00", "server.position is '12:00:00', a time that a spreadsheet made of it"),
        ("name", "02-Jan", "server.name is '02-Jan', a date that a spreadsheet made of it"),
        ("bmc", "{macAddress: 1122334455}", "MAC address '1122334455' is not six bytes; a spreadsheet may have cut"),
        ("bmc", '{address: "#REF!"}', "server.bmc.address is '#REF!', an error of a spreadsheet"),
    ],
)
def test_what_a_spreadsheet_made_of_a_value_is_refused_in_yaml_too(field: str, value: str, words: str) -> None:
    fields = {"name": "a", "bootMACAddress": f'"{ONE}"', field: value}
    text = ", ".join(f"{key}: {said}" for key, said in fields.items())
    _, mistakes = read_yaml(f"servers:\n- {{{text}}}\n", "r01.yaml")
    assert len(mistakes) == 1
    assert str(mistakes[0]).startswith(f"r01.yaml:2: {words}")


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("position", "1", "u01"),
        ("position", "u12", "u12"),
        ("position", "A-12", "A-12"),
        ("serialNumber", '"ABC1 "', "ABC1"),
        ("serialNumber", "0012", "0012"),
        ("serialNumber", "1E5", "1E5"),
        ("systemUUID", "4C4C4544004244108056B4C04F564432", "4c4c4544-0042-4410-8056-b4c04f564432"),
    ],
)
def test_a_value_in_yaml_is_read_as_in_csv(field: str, value: str, read: str) -> None:
    packing_list, mistakes = read_yaml(f'servers: [{{name: a, bootMACAddress: "{ONE}", {field}: {value}}}]', "r01.yaml")
    assert (mistakes, packing_list.notes) == ((), ())
    assert packing_list.entries[0].spec[field] == read


@pytest.mark.parametrize(
    ("field", "value"),
    [("serialNumber", "Default string"), ("systemUUID", "00000000-0000-0000-0000-000000000000")],
)
def test_a_vendors_placeholder_in_yaml_is_left_out_with_a_note(field: str, value: str) -> None:
    packing_list, mistakes = read_yaml(
        f'servers:\n- {{name: a, bootMACAddress: "{ONE}", {field}: {value}}}', "r01.yaml"
    )
    assert mistakes == ()
    assert field not in packing_list.entries[0].spec
    assert packing_list.notes == (
        f"r01.yaml:2: server.{field}: {value!r} is a vendor's placeholder, which many machines have; it is left out",
    )


def test_texts_of_people_in_yaml_are_taken_as_they_are() -> None:
    text = """\
apiVersion: provisioner.dev/v1alpha1
kind: Server
metadata: {name: a, annotations: {note: "=A1 ", was: "#N/A"}}
spec:
  bootMACAddress: "52:54:00:0a:00:20"
  bmc:
    address: https://10.90.0.11
    certificate: |
      -----BEGIN CERTIFICATE-----
"""
    packing_list, mistakes = read_yaml(text, "r01.yaml")
    assert mistakes == ()
    (entry,) = packing_list.entries
    assert entry.annotations == {"note": "=A1 ", "was": "#N/A"}
    assert entry.spec["bmc"]["certificate"] == "-----BEGIN CERTIFICATE-----\n"
