"""nginx's configuration on a cache host as text, and what of the cache is pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.boot.cache.answers import read_range
from provisioner.boot.cache.boot_hosts import REFUSED_SECONDS, SILENT_SECONDS, BootHosts
from provisioner.boot.cache.nginx import CacheSite, read_upstream, render_cache_nginx
from provisioner.boot.cache.paths import ImageFilePath, expected_digest, read_path
from provisioner.boot.host.image_slots import LEAST_SLOTS, UNKNOWN_LINK_MEGABITS, link_megabits, slots_of_link
from tests.golden_files import assert_golden

SITE = CacheSite(
    addresses=("10.80.0.5",),
    upstreams=(read_upstream("http://10.80.0.1"), read_upstream("http://boot2.example:8080/")),
    state=Path("/var/cache/provisioner-images"),
    slots=1192,
    user="www-data",
)
DIGEST = "ab" * 32
PART, ROOT = ImageFilePath("parts", f"sha256-{DIGEST}"), ImageFilePath(f"sha256-{DIGEST}", "root.squashfs")


def test_the_configuration_is_the_golden_one() -> None:
    assert_golden("boot/cache-nginx.conf", render_cache_nginx(SITE))


@pytest.mark.parametrize(
    "fields",
    [{"addresses": ("10.80.0.5 default_server",)}, {"user": "a b"}, {"workers": "2;"}, {"upstreams": ()},
     {"state": Path("/a b")}, {"state": Path("relative")}, {"state": Path("/a;b")}],
)  # fmt: skip
def test_values_that_could_be_directives_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        replace(SITE, **fields)


@pytest.mark.parametrize(
    "url",
    ["https://10.80.0.1", "10.80.0.1", "http://10.80.0.1/images", "http://u@10.80.0.1", "http://a b", "http://h:0",
     "http://h:99999", "http://", "http://h?x", "http://[::1]"],
)  # fmt: skip
def test_what_is_no_boot_host_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="no boot host"):
        read_upstream(url)


def test_a_boot_host_has_port_80_unless_it_says_another() -> None:
    assert list(SITE.upstreams) == ["http://10.80.0.1:80", "http://boot2.example:8080"]


@pytest.mark.parametrize(
    "path",
    [f"/images/parts/sha256-{DIGEST}\n", f"/images/parts/sha256-{DIGEST[1:]}", f"/images/sha256-{DIGEST}/manifest/",
     f"/images/sha256-{DIGEST}/stage1ximg", "/images/parts/..", f"images/parts/sha256-{DIGEST}", ""],
)  # fmt: skip
def test_a_path_is_a_file_of_an_image_or_nothing(path: str) -> None:
    assert read_path(path) is None
    assert read_path(PART.path) == PART


def test_a_file_is_known_by_its_name_or_by_its_manifest() -> None:
    manifest = f"provisioner-image 1\nroot {'c' * 64} 7\nkernel notadigest 7\n".encode()
    assert expected_digest(PART) == DIGEST
    assert expected_digest(ImageFilePath(ROOT.folder, "manifest")) == DIGEST
    assert (expected_digest(ROOT), expected_digest(ROOT, manifest)) == (None, "c" * 64)
    assert expected_digest(ImageFilePath(ROOT.folder, "vmlinuz"), manifest) is None
    assert expected_digest(ImageFilePath(ROOT.folder, "manifest.sig"), manifest) is None


@pytest.mark.parametrize(
    ("said", "span"),
    [(None, (0, 100)), ("bytes=0-", (0, 100)), ("bytes=40-", (40, 100)), ("bytes=40-49", (40, 50)),
     ("bytes=99-500", (99, 100)), ("bytes=100-", None), ("bytes=7-3", None), ("bytes=-5", (0, 100)),
     ("bytes=0-1,5-6", (0, 100)), ("bytes=0x1-", (0, 100)), ("lines=1-2", (0, 100)),
     ("bytes=" + "9" * 30 + "-", (0, 100))],
)  # fmt: skip
def test_a_range_is_of_one_beginning(said: str | None, span: tuple[int, int] | None) -> None:
    assert read_range(said, 100) == span


def test_a_boot_host_that_is_silent_or_lied_is_asked_after_the_others() -> None:
    now = [1000.0]
    hosts = BootHosts(["one", "two"], clock=lambda: now[0])
    assert hosts.to_ask(PART) == ["one", "two"]
    hosts.note_silence("one")
    assert hosts.to_ask(PART) == ["two", "one"]
    hosts.note_answer("one")
    hosts.refuse("one", PART, "00")
    assert (hosts.to_ask(PART), hosts.to_ask(ROOT)) == (["two"], ["one", "two"])
    hosts.note_silence("two")
    now[0] += REFUSED_SECONDS
    assert SILENT_SECONDS < REFUSED_SECONDS
    assert hosts.to_ask(PART) == ["two", "one"]
    now[0] += 1
    hosts.refuse("two", PART, "00")
    now[0] += REFUSED_SECONDS
    assert hosts.to_ask(PART) == ["one", "two"], "both have lied, this one longer ago"


def test_slots_share_a_link_so_that_each_gets_four_times_the_least_rate() -> None:
    assert slots_of_link(10_000) == 1192
    assert slots_of_link(1_000, 1 << 20) == 29
    assert slots_of_link(100) == LEAST_SLOTS


@pytest.mark.programs
def test_a_link_that_does_not_say_its_speed_counts_as_10_gigabit(tmp_path: Path) -> None:
    assert link_megabits("127.0.0.1", tmp_path) == UNKNOWN_LINK_MEGABITS
    (tmp_path / "lo").mkdir()
    for said, megabits in (("25000\n", 25_000), ("-1\n", UNKNOWN_LINK_MEGABITS), ("fast\n", UNKNOWN_LINK_MEGABITS)):
        (tmp_path / "lo/speed").write_text(said)
        assert link_megabits("127.0.0.1", tmp_path) == megabits
    assert link_megabits("192.0.2.77", tmp_path) == UNKNOWN_LINK_MEGABITS
