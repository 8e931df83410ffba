"""What a recipe's table `[gates]` says: budgets, what must be there, and what may be."""

from __future__ import annotations

from dataclasses import dataclass, field

from provisioner.image.tools.tables import RecipeGroup, grouped


@dataclass(frozen=True, kw_only=True)
class GateRules:
    """What the build holds the finished image to. Paths are patterns below the root, as `Path.glob` takes them.

    `root_budget_bytes` is of all layers together, `stage1_budget_bytes` of stage-1, both compressed. `agree`: versions
    of the manifest that must be equal, as far as the image has them.
    """

    root_budget_bytes: int
    stage1_budget_bytes: int
    needed_modules: tuple[RecipeGroup, ...] = field(metadata=grouped("purpose", "names"))
    """Names of modules that `modprobe --dry-run` must resolve in the merged root, or that the kernel has built in."""
    needed_files: tuple[RecipeGroup, ...] = field(metadata=grouped("purpose", "paths"))
    """Patterns of paths of which at least one must match."""
    forbid: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "paths"))
    """Patterns of paths of which none may match."""
    allow_setuid: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "paths"))
    """Patterns of paths that may be set-uid or set-gid; any other is a failure."""
    allow_missing_libraries: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "sonames"))
    """Sonames, or `path: soname`, that a program or library may need though no layer has them."""
    agree: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "versions"))
    allow_world_writable: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "paths"))
    allow_missing_firmware: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "files"))
    """Patterns of files below usr/lib/firmware that a module names and the image lacks."""
    allow_missing_symbols: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "symbols"))
    allow_public_keys: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "paths"))
    """Patterns of paths of files that look like a secret, and are public."""
    allow_leftovers: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "paths"))
    """Patterns of paths of caches, logs and the like that must stay."""
    allow_vulnerabilities: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "identifiers"))
    """Identifiers that are accepted; the reason begins with the day until which: `until 2027-01-31: `."""
