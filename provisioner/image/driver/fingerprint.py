"""What the driver's layer depends on, as digests: the same inputs need not be built, nor modules compiled, again."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.driver.obtain import Obtained
from provisioner.image.driver.plan import WantedDriver, obtain_command
from provisioner.image.inputs import Fingerprint
from provisioner.image.plan import Choices
from provisioner.image.recipe import Recipe
from provisioner.image.tools.tables import names_of

_HERE = Path(__file__).parent
_CODE_BESIDE = (
    "driver_recipe.py",
    "gates/packages/installed.py",
    "gates/packages/records.py",
    "gates/read/kernel_module.py",
    "module_signing.py",
    "plan.py",
    "tools/cache.py",
    "tools/command.py",
    "tools/elf.py",
    "tools/foreign.py",
    "tools/modules.py",
    "tools/tables.py",
)
_COMPILING_CODE = ("compile.py", "plan.py")


def driver_fingerprint(recipe: Recipe, choices: Choices, base: str, certificate: bytes | None) -> str:
    """Inputs of the layer: the base (by its fingerprint), what the recipe says, its files, the key that signs (by its
    certificate), and the code that does it.

    Raises: NeedsHuman if the recipe has no driver for this distribution.
    """
    if recipe.driver is None:
        raise NeedsHuman(f"recipe {recipe.name!r} has no GPU driver", hint="add [driver], or extend images/gpu-node")
    fingerprint = Fingerprint("driver")
    for name, value in (
        ("choices", choices),
        ("driver", recipe.driver.source(choices.distribution.name)),
        ("rules", replace(recipe.driver, sources={}, container_toolkit=False)),
        ("epoch", recipe.source_date_epoch),
    ):
        fingerprint.add(name, repr(value).encode())
    fingerprint.add("base", base.encode())
    fingerprint.add("certificate", certificate or b"")
    for tree in recipe.trees("driver"):
        fingerprint.add_files(tree, tree.rglob("*"))
    fingerprint.add_files(_HERE, _HERE.rglob("*.py"))
    fingerprint.add_code(_HERE.parent, _CODE_BESIDE)
    return fingerprint.hexdigest()


def tools_fingerprint(wanted: WantedDriver) -> str:
    """What is obtained, by the command that does it: packages are those of the day on which it ran."""
    fingerprint = Fingerprint("driver tools")
    for word in obtain_command(wanted, Path("target")):
        fingerprint.add("word", word.encode())
    return fingerprint.hexdigest()


def modules_fingerprint(recipe: Recipe, wanted: WantedDriver, obtained: Obtained) -> str:
    """What modules are compiled of: source and headers, by content; compiler and tools, by their versions."""
    source, driver = wanted.source.source, recipe.driver
    assert source is not None  # noqa: S101 - only what is compiled is asked for
    assert driver is not None  # noqa: S101
    fingerprint = Fingerprint("driver modules")
    for name, file in obtained.packages():
        if name == source.package or name.startswith(("linux-headers-", "linux-kbuild-")):
            fingerprint.add_file(name, file)
    status = (obtained.chroot / "var/lib/dpkg/status").read_bytes()
    fingerprint.add("tools", hashlib.sha256(status).digest())
    parts = (source.folder, source.replace, names_of(driver.modules), wanted.release, wanted.choices.architecture)
    fingerprint.add("recipe", repr((*parts, recipe.source_date_epoch)).encode())
    fingerprint.add_code(_HERE, _COMPILING_CODE)
    return fingerprint.hexdigest()
