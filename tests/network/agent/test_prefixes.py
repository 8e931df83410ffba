"""A remote's prefix is read into the kernel's own words, by whichever way it is written."""

from __future__ import annotations

import pytest

from provisioner.network.agent.model.ports import Prefix, UnreadableValue, read_prefix


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("10.1.0.3/32", Prefix(4, "10.1.0.3/32")),
        ("10.1.0.3", Prefix(4, "10.1.0.3/32")),
        ("10.1.0.0/24", Prefix(4, "10.1.0.0/24")),
        ("10.1.0.0/255.255.255.0", Prefix(4, "10.1.0.0/24")),
        ("0.0.0.0/0", Prefix(4, "0.0.0.0/0")),
        ("fd00:0:0::5/128", Prefix(6, "fd00::5/128")),
        ("FD00:1::/64", Prefix(6, "fd00:1::/64")),
        ("::ffff:10.1.0.3/128", Prefix(6, "::ffff:10.1.0.3/128")),
        ("::/0", Prefix(6, "::/0")),
    ],
)
def test_a_prefix_is_read_as_the_kernel_says_it(text: str, read: Prefix) -> None:
    assert read_prefix(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/32",
        "10.1.0.300/32",
        "010.1.0.3/32",
        "10.1.0.1/24",
        "fd00::1/64",
        "10.1.0.3/33",
        "fd00:::5/128",
        "10.1.0.3/128",
    ],
)
def test_what_is_no_prefix_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableValue, match="is no subnet"):
        read_prefix(text)
