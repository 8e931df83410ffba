"""The commands, byte for byte as the TPM 2.0 Library, part 3, lays them out, and the reading of answers."""

from __future__ import annotations

import pytest

from provisioner.node.tpm import commands, templates
from provisioner.node.tpm.device import TpmError

KEY, EK, SESSION = 0x80000001, 0x80000000, 0x03000000
EMPTY_PASSWORD = "00000009 40000009 0000 00 0000"
NO_SENSITIVE = "0004 0000 0000"
EK_POLICY = "837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa"
EK_RSA = f"0001 000b 000300b2 0020 {EK_POLICY} 0006 0080 0043 0010 0800 00000000 0100 {'00' * 256}"
EK_ECC = f"0023 000b 000300b2 0020 {EK_POLICY} 0006 0080 0043 0010 0003 0010 0020 {'00' * 32} 0020 {'00' * 32}"
AK_ECC = "0023 000b 00050472 0000 0010 0018 000b 0003 0010 0000 0000"
AK_RSA = "0001 000b 00050472 0000 0010 0014 000b 0800 00000000 0000"
AFTER_PUBLIC = "0000 00000000"

GOLDEN = {
    "CreatePrimary, EK of RSA": (
        commands.create_primary(commands.ENDORSEMENT, templates.ENDORSEMENT_RSA.public),
        f"8002 00000163 00000131 4000000b {EMPTY_PASSWORD} {NO_SENSITIVE} 013a {EK_RSA} {AFTER_PUBLIC}",
    ),
    "CreatePrimary, EK of ECC": (
        commands.create_primary(commands.ENDORSEMENT, templates.ENDORSEMENT_ECC.public),
        f"8002 000000a3 00000131 4000000b {EMPTY_PASSWORD} {NO_SENSITIVE} 007a {EK_ECC} {AFTER_PUBLIC}",
    ),
    "CreatePrimary, AK of ECC": (
        commands.create_primary(commands.ENDORSEMENT, templates.ATTESTATION_ECC.public),
        f"8002 00000041 00000131 4000000b {EMPTY_PASSWORD} {NO_SENSITIVE} 0018 {AK_ECC} {AFTER_PUBLIC}",
    ),
    "CreatePrimary, AK of RSA": (
        commands.create_primary(commands.ENDORSEMENT, templates.ATTESTATION_RSA.public),
        f"8002 00000041 00000131 4000000b {EMPTY_PASSWORD} {NO_SENSITIVE} 0018 {AK_RSA} {AFTER_PUBLIC}",
    ),
    "ReadPublic": (commands.read_public(0x81010001), "8001 0000000e 00000173 81010001"),
    "NV_ReadPublic": (commands.nv_read_public(0x01C00002), "8001 0000000e 00000169 01c00002"),
    "NV_Read": (
        commands.nv_read(0x01C00002, 512, 300),
        f"8002 00000023 0000014e 01c00002 01c00002 {EMPTY_PASSWORD} 012c 0200",
    ),
    "StartAuthSession": (
        commands.start_policy_session(b"n" * 16),
        f"8001 0000002b 00000176 40000007 40000007 0010 {'6e' * 16} 0000 01 0010 000b",
    ),
    "PolicySecret": (
        commands.policy_secret(commands.ENDORSEMENT, SESSION),
        f"8002 00000029 00000151 4000000b 03000000 {EMPTY_PASSWORD} 0000 0000 0000 00000000",
    ),
    "ActivateCredential": (
        commands.activate_credential(KEY, EK, SESSION, bytes.fromhex("0002aabb"), bytes.fromhex("0001cc")),
        "8002 0000002f 00000147 80000001 80000000 00000012 40000009 0000 00 0000 03000000 0000 00 0000 0002aabb 0001cc",
    ),
    "Quote": (
        commands.quote(KEY, b"\x11" * 32, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14]),
        f"8002 00000049 00000158 80000001 {EMPTY_PASSWORD} 0020 {'11' * 32} 0010 00000001 000b 03 ff5300",
    ),
    "PCR_Read": (commands.pcr_read([23, 0]), "8001 00000014 0000017e 00000001 000b 03 010080"),
    "PCR_Extend": (
        commands.pcr_extend(14, b"\x22" * 32),
        f"8002 00000041 00000182 0000000e {EMPTY_PASSWORD} 00000001 000b {'22' * 32}",
    ),
    "FlushContext": (commands.flush_context(KEY), "8001 0000000e 00000165 80000001"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_command_is_what_the_library_says(name: str) -> None:
    command, expected = GOLDEN[name]
    assert command.hex() == expected.replace(" ", "")
    assert int.from_bytes(command[2:6], "big") == len(command)


def test_a_session_is_used_up_by_its_command() -> None:
    command = commands.activate_credential(KEY, EK, SESSION, b"", b"")
    assert command[31:40].hex() == "030000000000000000", "continueSession is not set"


def test_values_of_pcrs_are_read_with_the_numbers_that_the_tpm_chose() -> None:
    answer = bytes.fromhex(f"00000007 00000001 000b 03 014000 00000002 0020 {'aa' * 32} 0020 {'bb' * 32}")
    assert commands.read_pcrs(answer) == {0: b"\xaa" * 32, 14: b"\xbb" * 32}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("00000007 00000001 000b 03 010000 00000000", "0 values came for 1 PCRs"),
        (f"00000007 00000001 0004 03 010000 00000001 0014 {'aa' * 20}", "1 values came for 0 PCRs"),
        ("00000007 00000001 000b 03 010000 00000001 0001 aa", "1 values came for 1 PCRs"),
        ("00000007 00000001 000b ff 010000", "the answer is cut: 255 bytes are due at 11"),
        ("00000007 ffffffff", "a list says that it has 4294967295 entries; it may have 16"),
        ("00000007 00000000 00000009", "a list says that it has 9 entries; it may have 8"),
        ("0000", "the answer is cut: 4 bytes are due at 0, 2 are there"),
    ],
)
def test_values_that_do_not_fit_are_refused(answer: str, words: str) -> None:
    with pytest.raises(TpmError, match=words):
        commands.read_pcrs(bytes.fromhex(answer))


def test_a_created_key_is_read_with_its_handle() -> None:
    answer = bytes.fromhex("80000002 00000006 0002 beef ffff 0000")
    assert commands.read_created(answer) == (0x80000002, b"\xbe\xef")


def test_a_quote_is_read_as_attestation_and_signature() -> None:
    assert commands.read_quote(bytes.fromhex("00000007 0002 beef 112233 0000010000")) == (b"\xbe\xef", b"\x11\x22\x33")


def test_the_size_of_an_index_is_read_behind_its_policy() -> None:
    assert commands.read_nv_size(bytes.fromhex("0010 01c00002 000b 00060006 0002 aaaa 0514 0000")) == 0x514
