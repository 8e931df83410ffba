"""Packing lists in CSV, as vendors and spreadsheets write them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.inventory.lists.csv_list import decode_text, read_csv
from provisioner.inventory.lists.entries import BadPackingList, ListEntry, Mistake
from provisioner.inventory.lists.headers import column_of
from provisioner.inventory.lists.packing_list import read_packing_list

VENDOR = """\
ACME Systems;Packing list 4711;;;;;
Customer;Example GmbH;;;;;

Slot/U position;S/N;Node MAC;MAC Address 2;BMC MAC;BMC IP;Weight
12;"ABC;1";52-54-00-AA-BB-01;5254.00aa.bb11;;10.90.0.1;12 kg
U13;ABC2;525400AABB02;n/a;AA:BB:CC:DD:EE:FE;https://10.90.0.2/;12 kg
# returned to the vendor
#14;ABC3;525400AABB03;;;;

;;;;;;Total 24 kg
"""


def read(text: str, **options: str | bool) -> tuple[tuple[ListEntry, ...], tuple[Mistake, ...]]:
    packing_list, mistakes = read_csv(text, "r01.csv", **({"rack": "r01"} | options))  # type: ignore[arg-type]
    return packing_list.entries, mistakes


def test_a_bmc_by_ipmi_is_known_by_its_address_or_by_a_column() -> None:
    entries, mistakes = read(
        "S/N;MAC;BMC IP;BMC protocol\n"
        "A;52:54:00:aa:bb:01;ipmi://10.90.0.1;\n"
        "B;52:54:00:aa:bb:02;10.90.0.2:6230;ipmi\n"
        "C;52:54:00:aa:bb:03;10.90.0.3;Redfish\n"
        "D;52:54:00:aa:bb:04;10.90.0.4;\n"
    )
    assert mistakes == ()
    assert [entry.spec["bmc"] for entry in entries] == [
        {"address": "ipmi://10.90.0.1", "protocol": "IPMI"},
        {"address": "ipmi://10.90.0.2:6230", "protocol": "IPMI"},
        {"address": "https://10.90.0.3", "protocol": "Redfish"},
        {"address": "https://10.90.0.4"},
    ]


def test_a_protocol_that_nobody_speaks_is_a_mistake() -> None:
    _, mistakes = read("S/N;MAC;BMC IP;Protocol\nA;52:54:00:aa:bb:01;10.90.0.1;SNMP\n")
    assert len(mistakes) == 1
    assert "'SNMP', expected Redfish or IPMI" in str(mistakes[0])


def test_a_vendors_list_becomes_servers() -> None:
    entries, mistakes = read(VENDOR, pool="gpu")
    assert mistakes == ()
    assert {entry.name: (entry.origin.line, entry.spec) for entry in entries} == {
        "r01-u12": (
            5,
            {
                "rackRef": "r01",
                "position": "u12",
                "serialNumber": "ABC;1",
                "bootMACAddress": "52:54:00:aa:bb:01",
                "interfaces": [{"name": "nic2", "macAddress": "52:54:00:aa:bb:11"}],
                "nodePoolRef": "gpu",
                "bmc": {"address": "https://10.90.0.1"},
            },
        ),
        "r01-u13": (
            6,
            {
                "rackRef": "r01",
                "position": "u13",
                "serialNumber": "ABC2",
                "bootMACAddress": "52:54:00:aa:bb:02",
                "nodePoolRef": "gpu",
                "bmc": {"address": "https://10.90.0.2/", "macAddress": "aa:bb:cc:dd:ee:fe"},
            },
        ),
    }


def test_columns_that_mean_nothing_are_named() -> None:
    packing_list, _ = read_csv(VENDOR, "r01.csv", rack="r01")
    assert packing_list.notes == ("columns not used: Weight",)


PLAIN = "name{s}MAC Address{s}Serial Number{e}r01-u01{s}52:54:00:00:00:01{s}A1{e}r01-u02{s}52:54:00:00:00:02{s}A2{e}"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separator_line_end_and_encoding_do_not_matter(separator: str, end: str, encoding: str) -> None:
    data = ("Größe: 2" + end + PLAIN.format(s=separator, e=end)).encode(encoding)
    entries, mistakes = read(decode_text(data))
    assert mistakes == ()
    assert [(entry.name, entry.spec["serialNumber"], entry.origin.line) for entry in entries] == [
        ("r01-u01", "A1", 3),
        ("r01-u02", "A2", 4),
    ]


@pytest.mark.parametrize(
    ("header", "field"),
    [
        ("Serial Number", "serialNumber"),
        ("S/N", "serialNumber"),
        ("SERVICE TAG", "serialNumber"),
        ("Serial_No.", "serialNumber"),
        ("U position", "position"),
        ("Slot", "position"),
        ("UUID", "systemUUID"),
        ("Node Pool", "nodePoolRef"),
        ("IP Address", "bootAddress"),
    ],
)
def test_headers_have_many_spellings(header: str, field: str) -> None:
    entries, mistakes = read(f"Name,MAC,{header}\nr01-u01,52:54:00:00:00:01,x\n")
    assert mistakes == ()
    assert entries[0].spec[field] == "x"


def test_of_numbered_mac_addresses_the_first_boots() -> None:
    entries, _ = read("Name,MAC 1,MAC 2,NIC3 MAC\na,52:54:00:00:00:01,52:54:00:00:00:02,52:54:00:00:00:03\n")
    assert entries[0].spec["bootMACAddress"] == "52:54:00:00:00:01"
    assert [interface["name"] for interface in entries[0].spec["interfaces"]] == ["nic2", "nic3"]


def test_a_name_is_made_of_rack_and_position_or_serial_number() -> None:
    entries, _ = read("Rack,U,S/N,MAC\nR 07,3,x,52:54:00:00:00:01\nR 07,,XY.9,52:54:00:00:00:02\n")
    assert [entry.name for entry in entries] == ["r-07-u03", "r-07-xy-9"]
    assert entries[0].spec["rackRef"] == "r-07"


def test_every_mistake_is_reported_at_once_with_line_and_column() -> None:
    text = (
        "Name,Node MAC,Arch,BMC MAC\n"
        "a,52:54:00:00:00,x86_64,\n"
        "b,5.25E+11,x86_64,\n"
        "c,,x86_64,\n"
        "d,52:54:00:00:00:04,sparc,zz\n"
        "e,01:00:5e:00:00:01,amd64,\n"
    )
    with pytest.raises(BadPackingList) as bad:
        read_packing_list(text.encode(), "r01.csv", rack="r01")
    assert [str(mistake) for mistake in bad.value.mistakes] == [
        "r01.csv:2, column Node MAC: MAC address '52:54:00:00:00' is not six bytes, expected a MAC address; "
        "write it as 52:54:00:12:34:56",
        "r01.csv:3, column Node MAC: '5.25E+11', a number that a spreadsheet rounded, expected a MAC address; "
        "format the column as text",
        "r01.csv:4, column Node MAC: no MAC address, expected the address of the interface that boots; fill it in",
        "r01.csv:5, column Arch: 'sparc', expected x86_64 or arm64; correct it",
        "r01.csv:5, column BMC MAC: MAC address 'zz' is not six bytes, expected a MAC address; "
        "write it as 52:54:00:12:34:56",
        "r01.csv:6, column Node MAC: MAC address '01:00:5e:00:00:01' is not a station's address, "
        "expected a MAC address; use the address of the boot interface",
    ]
    assert "6 mistakes" in str(bad.value)


def test_a_card_is_a_machine_of_its_own_in_the_server_that_its_row_names() -> None:
    entries, mistakes = read(
        "Slot;S/N;MAC;BMC IP;Installed in;VTEP\n"
        "12;A;52:54:00:aa:bb:01;10.90.0.1;;\n"
        "12;B;52:54:00:aa:bb:02;10.90.0.2;r01-u12;10.100.0.12\n",
        pool="gpu",
    )
    assert mistakes == ()
    host, card = entries
    assert (host.name, card.name) == ("r01-u12", "r01-u12-dpu")
    assert "dpu" not in host.spec
    assert card.spec["dpu"] == {"hostRef": "r01-u12", "vtepAddress": "10.100.0.12"}
    assert (card.spec["architecture"], card.spec["bmc"]["address"]) == ("arm64", "https://10.90.0.2")
    assert (host.spec["nodePoolRef"], card.spec.get("nodePoolRef")) == ("gpu", None)


def test_an_underlay_address_without_the_server_of_the_card_is_a_mistake() -> None:
    _, mistakes = read("Name,MAC,VTEP\na,52:54:00:00:00:01,10.100.0.1\n")
    assert [mistake.remedy for mistake in mistakes] == ["fill in the column dpu-of"]


def test_without_a_rack_the_row_says_how_to_give_one() -> None:
    _, mistakes = read_csv("Name,MAC\na,52:54:00:00:00:01\n", "x.csv")
    assert [mistake.remedy for mistake in mistakes] == ["give --rack NAME or a column Rack"]


def test_two_columns_for_one_thing_are_a_mistake() -> None:
    _, mistakes = read("Name,MAC,Node MAC\na,52:54:00:00:00:01,52:54:00:00:00:02\n")
    assert mistakes[0].observed == "columns 'MAC' and 'Node MAC' both mean bootMACAddress"


@pytest.mark.parametrize("text", ["", "\n\n", "52:54:00:00:00:01\n", '"' * 9])
def test_a_text_without_header_is_refused(text: str) -> None:
    entries, mistakes = read(text)
    assert entries == ()
    assert mistakes[0].observed == "no header was recognised"


GERMAN = """\
Lieferung 4711;Example GmbH;;;
Einschub-Nr.;Gerätekennung;Netz (PXE);Verwaltung;Gewicht
12;ABC1;52-54-00-AA-BB-01;10.90.0.1;12 kg
13;ABC2;52-54-00-AA-BB-02;10.90.0.2;12 kg
"""


def test_unknown_headers_are_one_mistake_that_names_them_what_is_known_and_how_to_map_them() -> None:
    entries, (unknown, unnamed) = read(GERMAN)
    assert entries == ()
    assert str(unknown.origin) == "r01.csv:2"
    for header in ("Einschub-Nr.", "Gerätekennung", "Netz (PXE)", "Verwaltung", "Gewicht"):
        assert repr(header) in unknown.observed
    assert "\nserial " in unknown.expected
    assert "service tag" in unknown.expected
    assert "--column mac='Netz (PXE)' (it holds MAC addresses)" in unknown.remedy
    assert unnamed.expected == "a column name or position or serial"


def test_a_mapped_header_is_read_whatever_it_is_called() -> None:
    columns = {"bootMACAddress": "netz (pxe)", "position": "Einschub-Nr.", "bmc.address": "Verwaltung"}
    packing_list, mistakes = read_csv(GERMAN, "r01.csv", rack="r01", columns={**columns, "nic2": "Netz 2"})
    assert mistakes == ()
    assert [(entry.name, entry.spec["bmc"]["address"]) for entry in packing_list.entries] == [
        ("r01-u12", "https://10.90.0.1"),
        ("r01-u13", "https://10.90.0.2"),
    ]
    assert packing_list.notes == (
        "columns not used: Gerätekennung, Gewicht",
        "columns mapped that this list does not have: Netz 2",
    )


def test_without_a_mac_column_ten_rows_have_one_mistake() -> None:
    rows = "".join(f"r01-u{n:02d},52:54:00:00:00:{n:02x}\n" for n in range(10))
    _, mistakes = read("Name,BMC MAC\n" + rows)
    assert [mistake.observed for mistake in mistakes] == ["no column is known to hold the MAC address"]


@pytest.mark.parametrize(
    ("header", "field"),
    [
        ("MAC-Adresse (PXE)", "bootMACAddress"),
        ("PXE\u00a0MAC-ADRESSE:", "bootMACAddress"),
        ("\ufeffMAC_Address *", "bootMACAddress"),
        ("MAC (BMC)", "bmc.macAddress"),
        ("iDRAC-IP-Adresse", "bmc.address"),
        ("Serien-Nr.", "serialNumber"),
        ("Höheneinheit", "position"),
        ("Schrank-Nummer", "rackRef"),
        ("BMC-Kennwort", "password"),
        ("Boot", None),
        ("Node address", None),
        ("Order No.", None),
    ],
)
def test_a_header_is_known_by_its_words_in_any_order_and_in_german(header: str, field: str | None) -> None:
    assert column_of(header) == field


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_known_by_its_zeros(encoding: str) -> None:
    entries, mistakes = read(decode_text(PLAIN.format(s=";", e="\r\n").encode(encoding)))
    assert mistakes == ()
    assert [entry.name for entry in entries] == ["r01-u01", "r01-u02"]


def test_a_workbook_is_told_to_be_saved_as_csv() -> None:
    with pytest.raises(BadPackingList, match=r"an Excel workbook.*Save as"):
        read_packing_list(b"PK\x03\x04...", "r01.xlsx")


def test_of_two_columns_for_one_thing_the_mapped_one_counts() -> None:
    text = "Name,MAC,Node MAC\na,52:54:00:00:00:01,52:54:00:00:00:02\n"
    assert "--column mac=MAC or --column mac='Node MAC'" in read(text)[1][0].remedy
    packing_list, mistakes = read_csv(text, "r01.csv", rack="r01", columns={"bootMACAddress": "Node MAC"})
    assert mistakes == ()
    assert packing_list.entries[0].spec["bootMACAddress"] == "52:54:00:00:00:02"


def test_a_header_alone_is_refused() -> None:
    assert read("Name,MAC\n")[1][0].observed == "no row follows the header"


PASSWORDS = "Name,MAC,BMC IP,BMC User,BMC Password\nr01-u01,52:54:00:00:00:01,10.90.0.1,admin,hunter2\n"


def test_passwords_are_refused_unless_they_may_become_secrets() -> None:
    _, mistakes = read(PASSWORDS)
    assert [str(mistake.origin) for mistake in mistakes] == ["r01.csv:1, column BMC Password"]
    assert "--bmc-secrets" in mistakes[0].remedy


def test_a_password_is_neither_in_the_object_nor_shown() -> None:
    (entry,), mistakes = read(PASSWORDS, take_passwords=True)
    assert mistakes == ()
    assert entry.credentials is not None
    assert (entry.credentials.username, entry.credentials.password.reveal()) == ("admin", "hunter2")
    assert "hunter2" not in repr(entry) + str(entry.body())


GOOD_ROW = "r01-u01,52:54:00:00:00:01,ABC1\n"
NOISE = st.text(alphabet=st.sampled_from("ab1:;,\t\"\n\r 'MAC/SN-"), max_size=200)


@given(NOISE)
def test_any_text_after_a_header_is_read_or_refused(text: str) -> None:
    entries, mistakes = read("Name,MAC,S/N\n" + text)
    assert entries or mistakes


@given(NOISE)
def test_a_good_row_is_read_whatever_text_follows_it(text: str) -> None:
    entries, _ = read("Name,MAC,S/N\n" + GOOD_ROW + text)
    assert "52:54:00:00:00:01" in [entry.spec["bootMACAddress"] for entry in entries]


@given(st.binary(max_size=200) | NOISE.map(f"Name,MAC,S/N\n{GOOD_ROW}".__add__).map(str.encode))
@example(f"Name,MAC,S/N\n{GOOD_ROW}".encode())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found: Sequence[ListEntry | Mistake]
    try:
        found = read_packing_list(data, "x.csv", rack="r01").entries
    except BadPackingList as bad:
        found = bad.mistakes
    assert found


@pytest.mark.parametrize(
    ("cells", "address"),
    [
        ("http://10.90.0.1,yes", "http://10.90.0.1"),
        ("10.90.0.1,Ja", "http://10.90.0.1"),
        ("10.90.0.1:8000,x", "http://10.90.0.1:8000"),
        ("https://10.90.0.1,TRUE", "https://10.90.0.1"),
    ],
)
def test_redfish_without_tls_is_said_in_a_column(cells: str, address: str) -> None:
    entries, mistakes = read(f"Name,MAC,BMC IP,BMC plain HTTP\na,52:54:00:00:00:01,{cells}\n")
    assert mistakes == ()
    assert entries[0].spec["bmc"] == {"address": address, "allowPlainHTTP": True}


@pytest.mark.parametrize("said", ["no", "Nein", "0", ""])
def test_a_bmc_that_is_not_said_to_lack_tls_is_spoken_to_by_it(said: str) -> None:
    entries, _ = read(f"Name,MAC,BMC IP,BMC plain HTTP\na,52:54:00:00:00:01,10.90.0.1,{said}\n")
    assert entries[0].spec["bmc"] == {"address": "https://10.90.0.1"}


def test_redfish_without_tls_that_nobody_allowed_is_a_mistake_with_its_remedy() -> None:
    _, mistakes = read(
        "Name,MAC,BMC IP,Unsicher\na,52:54:00:00:00:01,http://10.90.0.1,maybe\n",
        columns={"bmc.allowPlainHTTP": "Unsicher"},
    )
    assert [str(mistake) for mistake in mistakes] == [
        "r01.csv:2, column Unsicher: 'maybe', expected yes or no; correct it",
        "r01.csv:2, column BMC IP: http://10.90.0.1, by which the BMC's password can be read on the way, expected an "
        "address by https:// or ipmi://; write https://, or, where that network is yours alone, yes in a column "
        "BMC plain HTTP",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Name;MAC;S/N;Bemerkung\na;5254.0000.0001;x;eins, zwei, drei, vier, fünf, sechs\n",
        "Name|MAC|S/N\na|52:54:00:00:00:01|x\n",
        'Name,MAC,S/N\na,"=""525400000001""",="x"\n',
        "Name,MAC,S/N\na,'525400000001,'x\n",
        "Name,MAC\u200b,S/N\na,52:54:00:00:00:01\u200b,\ufeffx\u00a0\n",
        '"Name","MAC\n(PXE)","Serial\nNumber"\na,52-54-00-00-00-01,x\n',
        "\n" * 40 + ";;;\nName;MAC;S/N\n;;\na;52 54 00 00 00 01;x\n;;\n",
    ],
    ids=["commas in remarks", "bars", "formulas", "apostrophes", "invisible", "headers on two lines", "empty lines"],
)
def test_what_spreadsheets_make_of_a_list_is_read(text: str) -> None:
    entries, mistakes = read(text)
    assert mistakes == ()
    assert [(e.name, e.spec["bootMACAddress"], e.spec["serialNumber"]) for e in entries] == [
        ("a", "52:54:00:00:00:01", "x")
    ]


def test_where_no_header_is_known_the_data_tells_the_separator() -> None:
    _, mistakes = read("Netz;Gerätenr.;Notiz\n52:54:00:00:00:01;7;a, b, c, d\n52:54:00:00:00:02;8;\n")
    assert "headers not understood: 'Netz', 'Gerätenr.', 'Notiz'" in mistakes[0].observed


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PK\x03\x04\x14\x00", "an Excel workbook or another archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an Excel workbook of before 2007"),
        (b"%PDF-1.7\n", "a PDF"),
        (b"\x1f\x8b\x08\x00", "a compressed file"),
    ],
)
def test_a_file_that_is_no_text_is_called_what_it_is(data: bytes, what: str) -> None:
    with pytest.raises(BadPackingList) as bad:
        read_packing_list(data + bytes(99), "r01.csv", rack="r01")
    (mistake,) = bad.value.mistakes
    assert str(mistake) == (
        f"r01.csv: {what}, expected YAML, or CSV (comma, semicolon, tab or |); "
        "in the spreadsheet: Save as, CSV UTF-8 or Unicode text"
    )
