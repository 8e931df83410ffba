"""The whole way from packages to a layer, with Ubuntu's names and nothing real: what is kept, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman, NotFound
from provisioner.image.driver import build
from provisioner.image.driver.build import DriverTree, build_driver, check_versions
from provisioner.image.driver.layer import must_resolve
from provisioner.image.driver.obtain import Obtained
from provisioner.image.driver.packages import licence_of
from provisioner.image.gates.read.kernel_module import read_module
from provisioner.image.module_signing import MAGIC, ModuleKey
from provisioner.image.plan import Choices
from provisioner.image.recipe import parse_recipe, read_data, read_recipe
from provisioner.image.tools.foreign import ForeignPrograms
from tests.golden_files import assert_golden
from tests.image.driver.fakes import RELEASE, VERSION, fake_base, fake_module, fake_obtained, listing
from tests.image.samples import RECIPE

pytestmark = pytest.mark.programs


class World:
    """A build with fakes in place of the archive, and of what only a real root can run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.recipe = read_recipe(RECIPE)
        self.base = fake_base(folder / "base")
        self.obtained = 0
        self.tools_were_there: list[bool] = []
        self.fake: Obtained | None = None
        monkeypatch.setattr(build, "obtain", self._obtain)
        monkeypatch.setattr(build, "index", lambda *_: None)

    def _obtain(self, _wanted: object, _epoch: object, tools: Path, _foreign: object) -> Obtained:
        self.obtained += 1
        self.tools_were_there.append(tools.is_dir())
        tools.mkdir(parents=True, exist_ok=True)
        return self.fake or fake_obtained(self.folder / "obtained")

    def build(self, name: str = "layer", key: ModuleKey | None = None, *, force: bool = False) -> DriverTree:
        chosen = self.recipe.distribution("ubuntu", "x86_64")
        choices = Choices(architecture="x86_64", distribution=chosen, archives=())
        cache = self.folder / "cache"
        foreign = ForeignPrograms("x86_64")
        return build_driver(self.recipe, self.base, choices, foreign, key, cache / name, cache, force=force)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_the_layer_has_what_rules_keep_where_programs_look_for_it_and_nothing_else(world: World) -> None:
    assert_golden("image/driver-ubuntu.txt", listing(world.build().root))


def test_versions_and_packages_are_told(world: World) -> None:
    built = world.build()
    assert built.versions == {
        "driver": VERSION,
        "driver-modules": VERSION,
        "driver-firmware": VERSION,
        "driver-libraries": VERSION,
        "driver-kernel": RELEASE,
        "driver-signer": "nobody",
    }
    smi = next(each for each in built.records.packages if each.name == "nvidia-utils-580-server")
    assert (smi.version, "usr/bin/nvidia-smi" in smi.files) == (f"{VERSION}-0ubuntu0.24.04.1", True)
    assert list(built.records.texts.values()) == ["a licence\n"]
    assert world.recipe.driver is not None
    licences = {each.name: licence_of(each, world.recipe.driver.licences) for each in built.records.packages}
    assert licences["libnvidia-compute-580-server"].identifier == "LicenseRef-NVIDIA-Driver"
    assert licences["nvidia-modprobe"].identifier == "MIT"
    assert all(each.redistributable for each in licences.values())
    assert len(licences) == 7


def test_what_is_there_is_not_built_again_unless_that_is_asked_for(world: World) -> None:
    first = world.build()
    assert world.build() == first
    assert world.obtained == 1
    world.fake = Obtained(world.folder / "obtained")
    world.build("another")
    world.build(force=True)
    assert world.tools_were_there == [False, True, False], "by force packages are those of today"


def test_a_build_that_fails_leaves_no_layer_behind_that_is_taken_for_whole(world: World) -> None:
    world.fake = fake_obtained(world.folder / "old", firmware="570.1")
    with pytest.raises(NeedsHuman, match=f"driver-firmware is of version 570.1, the modules are of {VERSION}"):
        world.build()
    assert not (world.folder / "cache/layer").exists()
    world.fake = None
    assert world.build().versions["driver-firmware"] == VERSION


def test_modules_that_the_distribution_has_signed_stay_as_they_are(world: World, module_key: ModuleKey) -> None:
    signed = {name: module_key.sign(fake_module(name)) for name in ("nvidia", "nvidia-uvm")}
    world.fake = fake_obtained(world.folder / "signed", modules=signed)
    built = world.build(key=module_key)
    assert built.versions["driver-signer"] == "ubuntu"
    module = built.root / "usr/lib/modules" / RELEASE / "updates/nvidia/nvidia.ko"
    assert module.read_bytes() == signed["nvidia"]


def test_modules_that_nobody_has_signed_are_signed_with_the_sites_key(world: World, module_key: ModuleKey) -> None:
    built = world.build(key=module_key)
    assert built.versions["driver-signer"] == module_key.fingerprint
    module = built.root / "usr/lib/modules" / RELEASE / "updates/nvidia/nvidia.ko"
    assert module.read_bytes().endswith(MAGIC)
    for file in built.folder.rglob("*"):
        if file.is_file():
            assert b"PRIVATE KEY" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ({"nvidia": fake_module("nvidia")}, f"no module nvidia-uvm for kernel {RELEASE}"),
        (
            {name: fake_module(name, release="6.8.0-1-generic") for name in ("nvidia", "nvidia-uvm")},
            f"modules are for kernel 6.8.0-1-generic, the image has {RELEASE}",
        ),
        (
            {"nvidia": fake_module("nvidia"), "nvidia-uvm": fake_module("nvidia_uvm", version="580.65.06")},
            f"driver-firmware is of version {VERSION}, the modules are of {VERSION} 580.65.06|580.65.06",
        ),
        (
            {name: fake_module(name, version="570.1.2") for name in ("nvidia", "nvidia-uvm")},
            "modules are of version 570.1.2, the recipe wants 580",
        ),
        ({"nvidia": b"no module", "nvidia-uvm": b"neither"}, "not a kernel module"),
    ],
)
def test_modules_that_do_not_fit_are_refused(world: World, modules: dict[str, bytes], words: str) -> None:
    world.fake = fake_obtained(world.folder / "other", modules=modules)
    with pytest.raises(NeedsHuman, match=words):
        world.build()


def test_a_fabric_manager_of_another_version_is_refused() -> None:
    good = {"driver": VERSION, "driver-kernel": RELEASE, "driver-firmware": VERSION, "fabricmanager": VERSION}
    check_versions(good, "580", RELEASE)
    check_versions(good, VERSION, RELEASE)
    with pytest.raises(NeedsHuman, match=r"fabricmanager is of version 580\.95\.05"):
        check_versions(good | {"fabricmanager": "580.95.05"}, "580", RELEASE)
    with pytest.raises(NeedsHuman, match="the recipe wants 58"):
        check_versions(good, "58", RELEASE)


def test_a_package_of_which_the_recipe_says_no_licence_goes_into_no_image(world: World) -> None:
    folders, data = read_data(RECIPE)
    for licence in data["driver"]["licences"]:
        licence["packages"] = [name for name in licence["packages"] if name != "nvidia-modprobe"]
    world.recipe = parse_recipe(folders, data)
    with pytest.raises(NeedsHuman, match="no licence of package nvidia-modprobe"):
        world.build()


def test_a_unit_that_nobody_has_is_named(world: World) -> None:
    folders, data = read_data(RECIPE)
    data["driver"]["enable"][0]["units"].append("nvidia-dancer.service")
    world.recipe = parse_recipe(folders, data)
    with pytest.raises(NeedsHuman, match=r"enables 'nvidia-dancer\.service'"):
        world.build()


def test_an_image_without_a_driver_says_so(world: World) -> None:
    folders, data = read_data(RECIPE)
    del data["driver"]
    world.recipe = parse_recipe(folders, data)
    with pytest.raises(NeedsHuman, match="has no GPU driver"):
        world.build()


def modules_of(folder: Path, *modules: bytes, builtin: str = "") -> Path:
    """A tree with these modules, by the name that each says of itself."""
    release = folder / "usr/lib/modules" / RELEASE
    release.mkdir(parents=True)
    for module in modules:
        (release / f"{read_module(module).info['name'][0]}.ko").write_bytes(module)
    (release / "modules.builtin").write_text(builtin)
    return folder


def test_a_module_that_the_base_lacks_is_named_with_the_list_that_it_belongs_into(tmp_path: Path) -> None:
    nvidia = fake_module("nvidia", depends="drm")
    layer = modules_of(tmp_path / "layer", nvidia)
    must_resolve(layer, modules_of(tmp_path / "module", nvidia, fake_module("drm")), RELEASE)
    must_resolve(layer, modules_of(tmp_path / "builtin", nvidia, builtin="kernel/drivers/gpu/drm/drm.ko\n"), RELEASE)
    with pytest.raises(
        NeedsHuman, match=r"nvidia of the driver needs module drm, .*add 'drm' to \[\[root\.modules\]\]"
    ):
        must_resolve(layer, modules_of(tmp_path / "neither", nvidia), RELEASE)


def test_a_distribution_that_the_recipe_has_no_driver_for_is_told_with_those_that_it_has(world: World) -> None:
    driver = world.recipe.driver
    assert driver is not None
    with pytest.raises(NotFound, match="no GPU driver for 'fedora'; use one of debian, ubuntu"):
        driver.source("fedora")


def test_versions_are_written_for_the_manifest(world: World) -> None:
    built = world.build()
    assert json.loads((built.folder / "versions.json").read_text()) == built.versions
    assert all(value.isascii() and value.strip() == value for value in built.versions.values())
