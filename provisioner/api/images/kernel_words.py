"""The words of a server's kernel command line that its Image and its NodePool add. Pure.

The rest (`provisioner.*`, `initrd=`, `systemd.machine_id=`, `net.ifnames=`, `console=`) is the server's own: iPXE gets
it from the boot service, and an agent that starts the next system by kexec keeps it from its running command line. Both
add these words, in this order, so that a machine has the same command line however it was booted.
"""

from __future__ import annotations

from provisioner.api.images.image import Image
from provisioner.api.pools.node_pool import NodePool


def intent_arguments(pool: NodePool, image: Image) -> tuple[str, ...]:
    """The Image's kernel arguments, then the pool's: `BootIntent.kernel_arguments` for a boot of `image`."""
    return (*image.spec.kernel_arguments, *pool.spec.kernel_arguments)
