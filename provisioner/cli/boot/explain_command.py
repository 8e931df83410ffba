"""`provisioner boot explain MAC|SERVER`: what the machine would be told now, and by which rule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from provisioner.api.machinery.values import MacAddress
from provisioner.boot.explain.firmware import FIRMWARES, usual_firmware
from provisioner.boot.explain.story import tell_boot
from provisioner.cli import printer
from provisioner.cli.boot.explain_screen import render_story
from provisioner.cli.boot.explain_words import Explained, story_json
from provisioner.cli.boot.options import boot_host_of, boot_host_options
from provisioner.cli.boot.reading import read_boot
from provisioner.cli.kubectl.asking import KubectlCommand
from provisioner.cli.kubectl.completion import complete_server
from provisioner.cli.kubectl.connection import connection_of, connection_options
from provisioner.cli.kubectl.printing import output_option, print_objects
from provisioner.cli.options import FOLDER
from provisioner.join.admission.foresee import foresee_join


@click.command("explain", cls=KubectlCommand, short_help="Say what a machine would be told now, and by which rule.")
@click.argument("subject", metavar="MAC|SERVER", shell_complete=complete_server)
@click.option("--arch", type=click.Choice(FIRMWARES), help="The firmware that asks [as the Server's spec has it].")
@click.option("--via", metavar="ADDRESS", help="Relay, or an address in the subnet, from where it asks [its own].")
@click.option(
    "--image-store",
    type=FOLDER,
    envvar="PROVISIONER_BOOT_IMAGE_STORE",
    help="On a boot host: look whether each file is there.",
)
@boot_host_options
@output_option("json", "yaml")
@connection_options
def explain(**options: Any) -> None:
    """Say what a machine would be told if it booted now: DHCP, first stage, scripts, files, kernel arguments, and the
    join; each with the rule that decides.

    Nothing is sent to the machine and nothing is written. It reads Racks, Servers, NodePools, Images, Maintenances and
    Nodes, and no Secret: the role provisioner-viewer is enough.

    \b
    Examples:
      provisioner boot explain r01-u07
      provisioner boot explain 52:54:00:12:34:56 --arch x86_64-uefi-http
      provisioner boot explain 52:54:00:12:34:56 --via 10.90.0.1     # if it were cabled there
      provisioner boot explain r01-u07 -o json | jq .script.decision
    """
    host, is_known = boot_host_of(options)
    cluster = connection_of(options).open()
    read = read_boot(cluster, options["subject"], options["image_store"])
    firmware = options["arch"] or usual_firmware(read.boot.server)
    story = tell_boot(read.boot, host, firmware, options["via"])
    join = foresee_join(read.join, MacAddress(read.boot.mac), datetime.now(UTC))
    explained = Explained(
        story=story, join=join, join_facts=read.join, lease_known=read.lease_known, address_known=is_known
    )
    if options["output"]:
        print_objects([story_json(explained)], options["output"])
    else:
        printer.show(render_story(explained))
