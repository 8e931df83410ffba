"""Keys, credentials and quotes of a real software TPM, checked with `cryptography`; and that nothing stays loaded."""

from __future__ import annotations

import hashlib
import os

import pytest
from cryptography.exceptions import InvalidSignature

from provisioner.node.tpm import commands, templates
from provisioner.node.tpm.device import TpmDevice, TpmError
from provisioner.node.tpm.identity import TpmIdentity, TpmSecret, split_certificates
from tests.node.tpm.fake_tpm import FakeTpm, answered, refused
from tests.node.tpm.service import PCRS, make_credential, signature_is_right
from tests.node.tpm.swtpm import Swtpm

NONCE = bytes(range(32))
SECRET = b"s" * 32
RSA_CERTIFICATE, ECC_CERTIFICATE = 0x01C00002, 0x01C0000A
SET_ENDORSEMENT_PASSWORD = "8002 00000021 00000129 4000000b 00000009 40000009 0000 00 0000 0004 70617373"
LOCK_AT_ONCE = "8002 00000027 0000013a 4000000a 00000009 40000009 0000 00 0000 00000000 00000001 00000001"


def certificate(letter: bytes, size: int = 700) -> bytes:
    """What has the outer form of one."""
    return b"\x30\x82" + (size - 4).to_bytes(2, "big") + letter * (size - 4)


@pytest.mark.programs
@pytest.mark.parametrize("algorithm", ["RSA", "ECC"])
def test_a_credential_for_both_keys_is_opened_and_nothing_stays_loaded(tpm: Swtpm, algorithm: str) -> None:
    identity = TpmIdentity(tpm.open(), prefer=algorithm)
    assert {"RSA": templates.ENDORSEMENT_RSA, "ECC": templates.ENDORSEMENT_ECC}[algorithm].is_of(
        identity.endorsement_public
    )
    assert templates.ATTESTATION_ECC.is_of(identity.attestation_public)
    credential = make_credential(identity.endorsement_public, identity.attestation_public, SECRET)
    for _ in range(5):  # of sessions that are not flushed there is no room for so many
        secret = identity.activate(*credential)
        assert secret.value == SECRET
        assert f"{secret} {secret!r}" == "*** ***"
    identity.close()
    assert tpm.loaded() == 0


@pytest.mark.programs
def test_the_keys_are_the_same_after_a_power_cut(tpm: Swtpm) -> None:
    def keys() -> tuple[bytes, bytes]:
        identity = TpmIdentity(tpm.open())
        identity.close()
        return identity.endorsement_public, identity.attestation_public

    before = keys()
    tpm.stop()
    tpm.start()
    assert keys() == before


@pytest.mark.programs
def test_another_tpm_has_other_keys_and_opens_no_credential_of_this_one(tpm: Swtpm, other_tpm: Swtpm) -> None:
    mine, others = TpmIdentity(tpm.open(), prefer="ECC"), TpmIdentity(other_tpm.open(), prefer="ECC")
    credential = make_credential(mine.endorsement_public, mine.attestation_public, SECRET)
    with pytest.raises(TpmError, match=r"TPM2_ActivateCredential: swtpm refused with 0x2?.*was made for another TPM"):
        others.activate(*credential)
    assert mine.activate(*credential).value == SECRET, "its own does"
    others.close()
    mine.close()
    assert other_tpm.loaded() == tpm.loaded() == 0


@pytest.mark.programs
def test_a_credential_for_another_attestation_key_is_not_opened(tpm: Swtpm) -> None:
    identity = TpmIdentity(tpm.open())
    credential = make_credential(identity.endorsement_public, b"another key", SECRET)
    for _ in range(5):
        with pytest.raises(TpmError, match="TPM_RC_INTEGRITY: what came was made for another TPM or another key"):
            identity.activate(*credential)
    identity.close()
    assert tpm.loaded() == 0


@pytest.mark.programs
def test_a_quote_is_signed_over_the_nonce_and_the_values_that_come_with_it(tpm: Swtpm) -> None:
    identity = TpmIdentity(tpm.open())
    attest, signature, values = identity.quote(NONCE, PCRS)
    identity.close()
    assert signature_is_right(identity.attestation_public, signature, attest)
    with pytest.raises(InvalidSignature):
        signature_is_right(identity.attestation_public, signature, attest + b"x")
    assert sorted(values) == PCRS
    assert attest.startswith(b"\xffTCG\x80\x18")
    assert b"\x00\x20" + NONCE in attest
    assert attest.endswith(hashlib.sha256(b"".join(values[pcr] for pcr in PCRS)).digest())
    assert values[14] == bytes(32)


@pytest.mark.programs
def test_a_value_that_changes_between_quote_and_reading_is_asked_for_anew(tpm: Swtpm) -> None:
    device = tpm.open()
    extensions = [os.urandom(32), os.urandom(32)]

    class Disturbed:
        is_open = True

        def call(self, what: str, command: bytes, seconds: float = 10.0) -> bytes:
            if what == "TPM2_PCR_Read" and extensions:
                device.call("TPM2_PCR_Extend", commands.pcr_extend(14, extensions.pop()))
            return device.call(what, command, seconds)

        def close(self) -> None:
            device.close()

    identity = TpmIdentity(Disturbed())  # type: ignore[arg-type]
    attest, _, values = identity.quote(NONCE, PCRS)
    identity.close()
    assert not extensions
    assert attest.endswith(hashlib.sha256(b"".join(values[pcr] for pcr in PCRS)).digest())


@pytest.mark.programs
def test_certificates_and_their_chain_are_read_and_choose_the_key(tpm: Swtpm) -> None:
    tpm.write_nv(RSA_CERTIFICATE, certificate(b"e", 1300) + b"\xff" * 60)
    tpm.write_nv(0x01C00100, certificate(b"i") + certificate(b"r", 300))
    identity = TpmIdentity(tpm.open())
    assert identity.certificates == [certificate(b"e", 1300), certificate(b"i"), certificate(b"r", 300)]
    assert templates.ENDORSEMENT_RSA.is_of(identity.endorsement_public)
    identity.close()


@pytest.mark.programs
def test_of_two_certified_keys_the_preferred_one_is_taken(tpm: Swtpm) -> None:
    tpm.write_nv(RSA_CERTIFICATE, certificate(b"e"))
    tpm.write_nv(ECC_CERTIFICATE, certificate(b"c"))
    identity = TpmIdentity(tpm.open(), prefer="ECC")
    assert identity.certificates == [certificate(b"c")]
    assert templates.ENDORSEMENT_ECC.is_of(identity.endorsement_public)
    identity.close()


@pytest.mark.programs
def test_no_more_than_four_certificates_are_shown(tpm: Swtpm) -> None:
    tpm.write_nv(ECC_CERTIFICATE, certificate(b"e", 300))
    for index in range(2):
        tpm.write_nv(0x01C00100 + index, certificate(b"ab"[index : index + 1], 300) * 2)
    identity = TpmIdentity(tpm.open())
    identity.close()
    assert [one[-1:] for one in identity.certificates] == [b"e", b"a", b"a", b"b"]


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"", 0),
        (b"\x30\x82\xff\xff" + b"x" * 500, 0),
        (b"\x30\x82\x01\x00" + b"x" * 100, 0),
        (b"\xff" * 900, 0),
        (certificate(b"e") + b"\x30\x82", 1),
        (certificate(b"e", 4096), 1),
        (certificate(b"e", 4097), 0),
    ],
)
def test_what_is_no_whole_certificate_is_dropped(content: bytes, count: int) -> None:
    assert len(split_certificates(content)) == count


@pytest.mark.programs
def test_a_key_that_the_tpm_keeps_is_used_as_it_is(tpm: Swtpm) -> None:
    identity = TpmIdentity(tpm.open(), prefer="RSA")
    made, handle = identity.endorsement_public, identity._endorsement_key
    # TPM2_EvictControl by the owner: the loaded key is kept at 0x81010001.
    password = "00000009 40000009 0000 00 0000"
    identity._device.call(
        "TPM2_EvictControl", bytes.fromhex(f"8002 00000023 00000120 40000001 {handle:08x} {password} 81010001")
    )
    identity.close()
    again = TpmIdentity(tpm.open(), prefer="RSA")
    assert (again._endorsement_key, again.endorsement_public) == (0x81010001, made)
    credential = make_credential(again.endorsement_public, again.attestation_public, SECRET)
    assert again.activate(*credential).value == SECRET
    again.close()
    assert tpm.loaded() == 0
    assert tpm.ask("8001 0000000e 00000173 81010001"), "what the TPM keeps is not flushed"


@pytest.mark.programs
def test_a_tpm_whose_endorsement_hierarchy_has_a_password_says_so_and_nothing_stays_loaded(tpm: Swtpm) -> None:
    tpm.ask(SET_ENDORSEMENT_PASSWORD)
    with pytest.raises(TpmError, match=r"TPM2_CreatePrimary: swtpm refused with 0x9a2.*clear the TPM in the firmware"):
        TpmIdentity(tpm.open())
    assert tpm.loaded() == 0


@pytest.mark.programs
def test_a_lockout_by_wrong_passwords_keeps_nobody_from_proving(tpm: Swtpm) -> None:
    tpm.ask(LOCK_AT_ONCE)
    identity = TpmIdentity(tpm.open())
    credential = make_credential(identity.endorsement_public, identity.attestation_public, SECRET)
    assert identity.activate(*credential).value == SECRET
    identity.quote(NONCE, PCRS)
    identity.close()


def test_a_tpm_that_says_it_is_locked_is_believed() -> None:
    with FakeTpm(
        [refused(0x18B), refused(0x18B), refused(0x18B), refused(0x18B), refused(0x18B), refused(0x921)]
    ) as tpm:
        with pytest.raises(TpmError, match="TPM_RC_LOCKOUT: it is locked"):
            TpmIdentity(tpm.open())
        assert len(tpm.asked) == 6, "no other key is asked for: it would be refused, too"


@pytest.mark.programs
def test_a_tpm_without_that_curve_makes_keys_of_rsa(tpm: Swtpm) -> None:
    device = tpm.open()

    class WithoutCurve:
        is_open = True

        def call(self, what: str, command: bytes, seconds: float = 10.0) -> bytes:
            if what == "TPM2_CreatePrimary" and command[35:37] == b"\x00\x23":
                raise TpmError("no such curve", 0x2E6)
            return device.call(what, command, seconds)

        def close(self) -> None:
            device.close()

    identity = TpmIdentity(WithoutCurve())  # type: ignore[arg-type]
    assert templates.ENDORSEMENT_RSA.is_of(identity.endorsement_public)
    assert templates.ATTESTATION_RSA.is_of(identity.attestation_public)
    attest, signature, _ = identity.quote(NONCE, PCRS)
    assert signature_is_right(identity.attestation_public, signature, attest)
    identity.close()
    assert tpm.loaded() == 0


@pytest.mark.programs
def test_a_bank_that_is_switched_off_is_named(tpm: Swtpm) -> None:
    device = tpm.open()

    class WithoutBank:
        is_open = True

        def call(self, what: str, command: bytes, seconds: float = 10.0) -> bytes:
            if what == "TPM2_PCR_Read":
                return bytes(4) + bytes.fromhex("00000001 000b 03 000000 00000000")
            return device.call(what, command, seconds)

        def close(self) -> None:
            device.close()

    identity = TpmIdentity(WithoutBank())  # type: ignore[arg-type]
    with pytest.raises(TpmError, match="PCR 0 has no value in the bank sha256; enable that bank"):
        identity.quote(NONCE, PCRS)
    identity.close()


def test_a_key_by_another_template_than_was_asked_for_is_refused() -> None:
    wrong = answered(bytes.fromhex("80000000 0000000c 0004 00230004 0000 00000000"), 0x8002)
    with FakeTpm([refused(0x18B)] * 5 + [wrong, answered(b"")]) as tpm:
        with pytest.raises(TpmError, match="not by the template"):
            TpmIdentity(tpm.open())
        assert tpm.asked[-1] == commands.flush_context(0x80000000), "and not left behind"


@pytest.mark.programs
def test_a_tpm_that_hangs_is_not_asked_to_unload() -> None:
    with FakeTpm([None]) as tpm:
        device: TpmDevice = tpm.open()
        with pytest.raises(TpmError):
            device.call("x", commands.flush_context(1), 0.05)
        with pytest.raises(TpmError, match="given up before"):
            TpmIdentity(device)
        assert tpm.left.wait(180.0)
        assert len(tpm.asked) == 1


def test_a_secret_is_shown_to_nobody() -> None:
    assert f"{TpmSecret(b'abc')!r} {TpmSecret(b'abc')} {[TpmSecret(b'abc')]}" == "*** *** [***]"
