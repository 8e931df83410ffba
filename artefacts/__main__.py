"""`make package`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from artefacts.archive import archive
from artefacts.build import Ingredients, build
from artefacts.debian import archives_of, unpack
from artefacts.layer import FILE_TIME
from artefacts.recipe import MACHINES, Machine, read_recipe
from artefacts.sbom import render_sbom
from artefacts.wheel import build_wheel
from artefacts.wheels import download, wheel_of
from lab.binaries.cache import architecture
from lab.cli.parts import demo_state
from provisioner import __version__
from provisioner.api.machinery.errors import NeedsHuman, ProvisionerError
from provisioner.image.tools.command import clean_environment, run

RECIPES: Final = ("provisioner.toml", "provisioner-boot.toml")
SUMS: Final = "SHA256SUMS"


@click.command("package")
@click.option("--checkout", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Of this project.")
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), default=Path("dist"), show_default=True)
@click.option("--machine", "machines", multiple=True, type=click.Choice(MACHINES), default=MACHINES, show_default=True)
@click.option(
    "--mirror", help="Archive of Debian [this machine's]; one that keeps former states gives the same for ever."
)
def package(checkout: Path, to: Path, machines: tuple[Machine, ...], mirror: str | None) -> None:
    """Make wheel and container images of a checkout. SOURCE_DATE_EPOCH is when [the last commit]."""
    checkout, to = checkout.absolute(), to.absolute()
    made = [build_wheel(checkout, to)]
    _say(made[0])
    own = wheel_of(made[0])
    recipes = [read_recipe(checkout / "packaging/containers" / name) for name in RECIPES]
    cache = demo_state("package").cache
    archives = archives_of(recipes[0].suite, mirror)
    names = sorted({name for recipe in recipes for name in recipe.packages})
    unpacked = {machine: unpack(names, machine, archives, cache, _tell) for machine in {*machines, own_machine()}}
    for machine in machines:
        wheels = download(checkout / "requirements/runtime.txt", recipes[0].python, machine, cache, _tell)
        for recipe in recipes:
            built = build(
                Ingredients(
                    recipe=recipe,
                    machine=machine,
                    debian=unpacked[machine],
                    own_machine=unpacked[own_machine()],
                    wheels=wheels,
                    own=own,
                ),
                epoch(checkout),
                cache,
            )
            file = to / f"{recipe.name}-{__version__}-{machine}.oci.tar"
            file.write_bytes(archive(built.image))
            (to / f"{recipe.name}-{__version__}-{machine}.spdx.json").write_bytes(render_sbom(built, epoch(checkout)))
            made += [file, file.with_name(file.name.replace(".oci.tar", ".spdx.json"))]
            unpacked_bytes = sum(layer.unpacked_bytes for layer in built.image.layers)
            _say(file, f", {unpacked_bytes / 1e6:.1f} MB unpacked, {built.image.digest}")
    made.append(_pack_chart(checkout, to))
    write_sums(to)


def epoch(checkout: Path) -> int:
    """When what is packaged was made, in seconds since 1970: SOURCE_DATE_EPOCH, or the last commit."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    asked = subprocess.run(
        ["git", "-C", str(checkout), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return int(asked.stdout) if asked.returncode == 0 and asked.stdout.strip() else FILE_TIME


def _pack_chart(checkout: Path, to: Path) -> Path:
    """The chart, which has a packer of its own beside it."""
    run(
        ["env", "-C", str(checkout), sys.executable, "-m", "charts.pack", str(to)],
        hint="is charts/provisioner as it should be?",
        environment={**clean_environment(FILE_TIME), "PYTHONPATH": str(checkout)},
    )
    file = to / f"provisioner-{__version__}.tgz"
    _say(file)
    return file


def write_sums(folder: Path) -> None:
    """SHA256SUMS of all packages of this version in the folder, the chart's among them; for `sha256sum --check`."""
    files = sorted(file for file in folder.glob(f"provisioner*-{__version__}*") if file.is_file())
    lines = []
    for file in files:
        with file.open("rb") as stream:
            lines.append(f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {file.name}\n")
    (folder / SUMS).write_text("".join(lines))


def own_machine() -> Machine:
    return "arm64" if architecture() == "arm64" else "amd64"


def _say(file: Path, more: str = "") -> None:
    click.echo(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB{more}")


def _tell(line: str) -> None:
    click.echo(f"  {line}", err=True)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        package.main(arguments, prog_name="make package", standalone_mode=False)
    except NeedsHuman as error:
        click.echo(f"error: {Exception.__str__(error)}\n  try: {error.hint}", err=True)
        return 1
    except ProvisionerError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
