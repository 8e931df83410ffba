"""`provisioner control-plane-flags`."""

from __future__ import annotations

import click

from provisioner.cli import printer


@click.command("control-plane-flags")
def control_plane_flags() -> None:
    """Print the flags and objects that a control plane of your own needs, with the reason for each."""
    from provisioner.cli.control_plane.flags import production_flags_text, production_objects_text

    printer.show(production_flags_text())
    printer.show(production_objects_text())
