"""How the next kernel is loaded, by the kernel's lockdown."""

from __future__ import annotations

from provisioner.node.image.kexec import load_commands

WHAT = ["-l", "/next/vmlinuz", "--initrd=/next/initrd", "--command-line=quiet console=ttyS0"]


def commands(lockdown: str) -> list[list[str]]:
    return load_commands("/next/vmlinuz", "/next/initrd", "quiet console=ttyS0", lockdown)


def test_a_kernel_that_is_not_locked_down_leaves_the_checksum_out_if_it_can() -> None:
    assert commands("none") == [
        ["/usr/sbin/kexec", "-c", "--no-checks", *WHAT],
        ["/usr/sbin/kexec", "-s", *WHAT],
    ]


def test_a_locked_down_kernel_is_only_asked_for_what_it_checks_itself() -> None:
    assert commands("integrity") == [["/usr/sbin/kexec", "-s", *WHAT]]
