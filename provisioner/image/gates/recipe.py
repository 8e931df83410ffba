"""What a recipe's table `[gates]` says: budgets, what must be there, and what may be."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.image.tools.tables import RecipeGroup, TomlTable


@dataclass(frozen=True, kw_only=True)
class GateRules:
    """What the build holds the finished image to. Paths are patterns below the root, as `Path.glob` takes them.

    `root_budget_bytes` is of all layers together, `stage1_budget_bytes` of stage-1, both compressed. `agree`: versions
    of the manifest that must be equal, as far as the image has them.
    """

    root_budget_bytes: int
    stage1_budget_bytes: int
    needed_modules: tuple[RecipeGroup, ...]
    """Names of modules that `modprobe --dry-run` must resolve in the merged root, or that the kernel has built in."""
    needed_files: tuple[RecipeGroup, ...]
    """Patterns of paths of which at least one must match."""
    forbidden: tuple[RecipeGroup, ...]
    """Patterns of paths of which none may match."""
    allowed_setuid: tuple[RecipeGroup, ...]
    """Patterns of paths that may be set-uid or set-gid; any other is a failure."""
    allowed_missing_libraries: tuple[RecipeGroup, ...]
    """Sonames, or `path: soname`, that a program or library may need though no layer has them."""
    agree: tuple[RecipeGroup, ...]
    allowed_world_writable: tuple[RecipeGroup, ...]
    allowed_missing_firmware: tuple[RecipeGroup, ...]
    """Patterns of files below usr/lib/firmware that a module names and the image lacks."""
    allowed_missing_symbols: tuple[RecipeGroup, ...]
    allowed_public_keys: tuple[RecipeGroup, ...]
    """Patterns of paths of files that look like a secret, and are public."""
    allowed_leftovers: tuple[RecipeGroup, ...]
    """Patterns of paths of caches, logs and the like that must stay."""
    allowed_vulnerabilities: tuple[RecipeGroup, ...]
    """Identifiers that are accepted; the reason begins with the day until which: `until 2027-01-31: `."""


def parse_gates(table: TomlTable) -> GateRules:
    """Raises: NeedsHuman naming a key that is missing, empty or of another type."""
    return GateRules(
        root_budget_bytes=table.number("root-budget-bytes"),
        stage1_budget_bytes=table.number("stage1-budget-bytes"),
        needed_modules=table.groups("needed-modules", "purpose", "names"),
        needed_files=table.groups("needed-files", "purpose", "paths"),
        forbidden=table.groups("forbid", "reason", "paths"),
        allowed_setuid=table.groups("allow-setuid", "reason", "paths"),
        allowed_missing_libraries=table.groups("allow-missing-libraries", "reason", "sonames"),
        agree=table.groups("agree", "reason", "versions"),
        allowed_world_writable=table.groups("allow-world-writable", "reason", "paths"),
        allowed_missing_firmware=table.groups("allow-missing-firmware", "reason", "files"),
        allowed_missing_symbols=table.groups("allow-missing-symbols", "reason", "symbols"),
        allowed_public_keys=table.groups("allow-public-keys", "reason", "paths"),
        allowed_leftovers=table.groups("allow-leftovers", "reason", "paths"),
        allowed_vulnerabilities=table.groups("allow-vulnerabilities", "reason", "identifiers"),
    )
