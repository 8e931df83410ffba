"""An image whose staging was cut, or whose process ended: what is fetched the next time."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.node.image.stage import stage
from tests.node.fake_image_store import FakeImageStore
from tests.node.staged import BASE, DRIVER, IMAGE, STAGE1, FakeKexec, in_store, initrd_of, key_in, leave, starts

pytestmark = pytest.mark.programs

LEFT = initrd_of(IMAGE, "")
IN_DRIVER = LEFT.index(DRIVER[:99])
ENDED = {
    "nowhere": (0, {"base": [""], "driver": [""], "site": [""]}),
    "in stage-1": (3000, {"base": [""], "driver": [""], "site": [""]}),
    "in the manifest": (len(STAGE1) + 200, {"base": [""], "driver": [""], "site": [""]}),
    "in the first layer": (LEFT.index(BASE[:99]) + 500_000, {"base": ["bytes=500000-"], "driver": [""], "site": [""]}),
    "before the second layer": (IN_DRIVER - 10, {"base": [], "driver": [""], "site": [""]}),
    "in the second layer": (IN_DRIVER + 400_000, {"base": [], "driver": ["bytes=400000-"], "site": [""]}),
    "behind all layers": (len(LEFT) - 4, {"base": [], "driver": [], "site": []}),
}
"""Where an earlier process ended, and what is asked for after that."""


def test_a_fetch_that_was_cut_goes_on_where_it_ended(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    cuts = [300_000, 100_000]

    def cut(path: str, body: bytes) -> bytes:
        return body[: cuts.pop()] if path.endswith(IMAGE.path("driver")) and cuts else body

    store.fault = cut
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))
    assert starts(store, "driver") == ["", "bytes=100000-", "bytes=400000-"]
    assert starts(store, "base") == starts(store, "site") == [""]


@pytest.mark.parametrize("where", ENDED)
def test_a_new_process_goes_on_with_what_the_one_before_has_fetched(
    root: Path, store: FakeImageStore, where: str
) -> None:
    store.files = in_store(IMAGE)
    at, asked = ENDED[where]
    leave(root, LEFT[:at])
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))
    assert {layer: starts(store, layer) for layer in asked} == asked


@pytest.mark.parametrize("at", [100, LEFT.index(BASE) + 5, IN_DRIVER + 5])
def test_what_an_earlier_process_left_is_not_believed(root: Path, store: FakeImageStore, at: int) -> None:
    store.files = in_store(IMAGE)
    leave(root, LEFT[:at] + bytes([LEFT[at] ^ 1]) + LEFT[at + 1 :] + b"more")
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))


def test_what_stands_behind_the_end_of_the_archive_goes(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    leave(root, LEFT + b"more" * 99)
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))


def test_a_source_without_ranges_serves_too(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    store.ranges = False
    cuts = [200_000]
    store.fault = lambda path, body: body[: cuts.pop()] if path.endswith(IMAGE.path("driver")) and cuts else body
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))


def test_what_another_image_left_is_not_used(root: Path, store: FakeImageStore) -> None:
    store.files = in_store(IMAGE)
    leave(root, b"x" * 1_000_000, image_digest="sha256:" + "77" * 32)
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.initrd == initrd_of(IMAGE, key_in(kexec.initrd))
