"""Whom the cluster believes, as text: what is read, what is refused, how a line is added."""

from __future__ import annotations

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.sign import SecretKey
from provisioner.image.trust.controller import read_trust
from provisioner.image.trust.document import MOST_REVOKED, Trust, add_revoked, parse_trust

KEYS = [SecretKey.generate(lambda size, filler=filler: filler * size).public for filler in (b"a", b"b")]
DIGEST = Sha256Digest("sha256:" + "ab" * 32)


def test_nothing_says_nothing_and_two_keys_are_two() -> None:
    assert parse_trust({}) == Trust()
    trust = parse_trust({"image.pub": "".join(key.encode() for key in KEYS), "revoked": f"{DIGEST} CVE-2026-1\n"})
    assert trust.keys is not None
    assert trust.keys.keys == tuple(KEYS)
    assert trust.revoked == {DIGEST: "CVE-2026-1"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"image.pub": ""}, "not in signify's format"),
        ({"image.pub": "untrusted comment: x\nAAAA\n"}, "bytes"),
        ({"image-pub": "x"}, "means nothing"),
        ({"revoked": "gpu-node-1 old\n"}, "is not a digest and a reason"),
        ({"revoked": f"{DIGEST}\n"}, "is not a digest and a reason"),
        ({"revoked": f"{DIGEST} x\n" * (MOST_REVOKED + 1)}, "more than 4096"),
    ],
)
def test_a_typo_is_told_and_nothing_of_the_document_counts(data: dict[str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        parse_trust(data)


def test_a_config_map_that_is_not_there_or_not_text_is_read_as_what_it_is() -> None:
    assert read_trust(None) == Trust()
    assert read_trust({"data": None}) == Trust()
    assert isinstance(read_trust({"binaryData": {"image.pub": "AA=="}}), Refused)


def test_a_line_is_added_once() -> None:
    once = add_revoked("", DIGEST, "a hole in its kernel")
    assert once == f"{DIGEST} a hole in its kernel\n"
    assert add_revoked(once, DIGEST, "another reason") == once


@pytest.mark.parametrize("reason", ["", " ", "two\nlines", "x" * 161, "bell\a"])
def test_a_reason_is_one_line(reason: str) -> None:
    with pytest.raises(Refused, match="is no line of 1 to 160 characters"):
        add_revoked("", DIGEST, reason)
