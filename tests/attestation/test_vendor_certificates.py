"""Certificates as vendors have burnt them into TPMs, which is not always DER: what counts, and what does not."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.api.machinery.errors import Refused
from provisioner.attestation.endorsement import NotVouched, Vouched, check_certificates, load_authorities
from tests.attestation.test_endorsement import INTERMEDIATE, NOW, ROOT, TPM, Authority, authority, leaf, pem
from tests.join.der import content, parts, tlv

VERSION, SERIAL, ALGORITHM, ISSUER, VALIDITY, SUBJECT, KEY, EXTENSIONS = range(8)
Fields = list[bytes]
Quirk = Callable[[Fields], None]


def written(certificate: bytes, change: Quirk, signer: Authority = ROOT) -> bytes:
    """The certificate with other fields, signed anew."""
    content_of, algorithm, _ = parts(content(certificate))
    fields = parts(content(content_of))
    change(fields)
    signed = tlv(0x30, b"".join(fields))
    return tlv(0x30, signed + algorithm + tlv(3, b"\0" + signer.key.sign(signed, ec.ECDSA(hashes.SHA256()))))


def in_another_order(common_name: str) -> bytes:
    """A name of one set, whose members are not sorted."""
    values = (("550403", common_name), ("55040a", "Made-up Silicon Corporation"), ("550406", "TW"))
    members = (tlv(0x30, tlv(6, bytes.fromhex(oid)) + tlv(0x13, text.encode())) for oid, text in values)
    return tlv(0x30, tlv(0x31, b"".join(members)))


def each_extension(change: Callable[[list[bytes]], list[bytes]]) -> Quirk:
    def quirk(fields: Fields) -> None:
        listed = parts(content(content(fields[EXTENSIONS])))
        changed = (tlv(0x30, b"".join(change(parts(content(each))))) for each in listed)
        fields[EXTENSIONS] = tlv(0xA3, tlv(0x30, b"".join(changed)))

    return quirk


def with_extension(oid: str, value: bytes, critical: bytes = b"") -> Quirk:
    def quirk(fields: Fields) -> None:
        listed = content(content(fields[EXTENSIONS]))
        added = tlv(0x30, tlv(6, bytes.fromhex(oid)) + critical + tlv(4, value))
        fields[EXTENSIONS] = tlv(0xA3, tlv(0x30, listed + added))

    return quirk


def replaced(at: int, value: bytes) -> Quirk:
    def quirk(fields: Fields) -> None:
        fields[at] = value

    return quirk


def with_long_lengths(fields: Fields) -> None:
    body = content(fields[VALIDITY])
    fields[VALIDITY] = bytes((0x30, 0x82, 0, len(body))) + body


def of_rsaes_oaep(fields: Fields) -> None:
    _, bits = parts(content(fields[KEY]))
    named = tlv(0x30, tlv(6, bytes.fromhex("2a864886f70d010107")) + tlv(0x30, b""))
    fields[KEY] = tlv(0x30, named + bits)


def constraints(value: str) -> Quirk:
    return each_extension(
        lambda each: [*each[:-1], tlv(4, bytes.fromhex(value))] if content(each[0]).hex() == "551d13" else each
    )


def times(tag: int, begin: bytes, end: bytes) -> Quirk:
    return replaced(VALIDITY, tlv(0x30, tlv(tag, begin) + tlv(tag, end)))


QUIRKS: Final[dict[str, Quirk]] = {
    "critical FALSE is written out": each_extension(
        lambda each: [each[0], b"\x01\x01\x00", each[1]] if len(each) == 2 else each
    ),
    "critical is true by another number": each_extension(
        lambda each: [each[0], b"\x01\x01\x01", each[2]] if len(each) == 3 else each
    ),
    "cA FALSE is written out": constraints("3003010100"),
    "lengths are longer than they need be": with_long_lengths,
    "the serial number is negative": replaced(SERIAL, b"\x02\x02\xff\x80"),
    "the serial number has zeros in front": replaced(SERIAL, b"\x02\x03\x00\x00\x05"),
    "times are without seconds": times(0x17, b"2001010000Z", b"4001010000Z"),
    "times are of another zone": times(0x17, b"200101000000+0100", b"400101000000-0230"),
    "times have parts of seconds": times(0x18, b"20200101000000.5Z", b"20400101000000.5Z"),
    "the key is named RSAES-OAEP": of_rsaes_oaep,
    "an extension that nobody looks at is broken": with_extension("551d1f", b"\x30\x05\x01"),
}


def check(*certificates: bytes, authorities: bytes = pem(ROOT)) -> Vouched | NotVouched:
    return check_certificates(TPM.endorsement, certificates, load_authorities(authorities), NOW)


def armoured(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("quirk", QUIRKS.values(), ids=QUIRKS.keys())
def test_an_endorsement_certificate_counts_in_spite_of_its_form(quirk: Quirk) -> None:
    odd = written(leaf(ROOT), quirk)
    assert isinstance(check(odd), Vouched), check(odd)
    assert isinstance(check(odd + b"\xff" * 100), Vouched)


@pytest.mark.parametrize("quirk", QUIRKS.values(), ids=QUIRKS.keys())
def test_one_whose_content_was_changed_after_it_was_signed_does_not(quirk: Quirk) -> None:
    odd = written(leaf(ROOT), quirk, signer=INTERMEDIATE)
    judged = check(odd)
    assert isinstance(judged, NotVouched)
    assert "has not signed" in judged.why


def test_names_whose_sets_are_out_of_order_are_compared_by_what_they_say() -> None:
    def renamed(*places: int) -> Quirk:
        def quirk(fields: Fields) -> None:
            for place in places:
                fields[place] = in_another_order("Made-up TPM Root CA")

        return quirk

    root = written(ROOT.der, renamed(ISSUER, SUBJECT))
    odd = written(leaf(ROOT), renamed(ISSUER))
    assert isinstance(check(odd, authorities=armoured(root)), Vouched)
    assert isinstance(check(odd, authorities=pem(INTERMEDIATE)), NotVouched)


@pytest.mark.parametrize(
    ("quirk", "why"),
    [
        (constraints("3003010101"), "is a CA's"),
        (with_extension("2a0304", b"\x30\x00", b"\x01\x01\x01"), "critical extension 1.2.3.4"),
        (times(0x17, b"2001010000Z", b"2101010000Z"), "was valid until 2021-01-01"),
        (times(0x17, b"20x1010000Z", b"2101010000Z"), "cannot be read"),
        (replaced(ALGORITHM, bytes.fromhex("300a06082a8648ce3d040303")), "cannot be read"),
    ],
)
def test_what_it_says_is_judged_as_strictly_as_ever(quirk: Quirk, why: str) -> None:
    judged = check(written(leaf(ROOT), quirk))
    assert isinstance(judged, NotVouched)
    assert why in judged.why


def test_an_authority_that_cannot_be_read_is_named_and_the_others_count() -> None:
    left_out: list[str] = []
    file = b"# vendors\n" + pem(ROOT) + armoured(ROOT.der[:-40]) + pem(INTERMEDIATE)
    assert len(load_authorities(file, left_out=left_out.append)) == 2
    (why,) = left_out
    line = file.count(b"\n", 0, len(b"# vendors\n" + pem(ROOT))) + 1
    assert why.startswith(f"certificate 2 of 3 (line {line}) cannot be read: ")


def test_a_file_none_of_whose_authorities_can_be_read_is_refused() -> None:
    with pytest.raises(Refused, match=r"certificate 1 of 1 \(line 1\) cannot be read"):
        load_authorities(armoured(ROOT.der[:-40]))


def test_an_authority_that_is_none_is_named() -> None:
    file = pem(ROOT) + armoured(leaf(ROOT))
    with pytest.raises(Refused, match=r"certificate 2 of 2 \(line \d+\), '.*', is no CA's"):
        load_authorities(file)


def test_an_intermediate_that_cannot_be_read_is_as_one_that_was_not_sent() -> None:
    assert isinstance(check(leaf(INTERMEDIATE), b"\x30\x82\x00\x04junk", INTERMEDIATE.der), Vouched)
    other = authority("another", ROOT)
    assert isinstance(check(leaf(other), b"junk"), NotVouched)
