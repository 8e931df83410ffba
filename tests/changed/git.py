"""What differs from the base branch."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class GitFailed(Exception):
    """The message says what to do."""


@dataclass(frozen=True)
class Changes:
    """Sorted paths relative to the checkout. A renamed file is a deleted one and a new one."""

    since: str
    """Name of the branch or commit."""
    paths: Sequence[str]
    deleted: Sequence[str]
    """Those of `paths` that no longer exist."""


def read_changes(root: Path, base: str = "main") -> Changes:
    """Committed since the branch left `base`, staged, unstaged and untracked.

    On `base` itself: since `origin/<base>`, or since HEAD where there is no such branch.
    Raises: GitFailed.
    """
    since, commit = _find_base(root, base)
    changed = _paths(_git(root, "diff", "--name-only", "--no-renames", "-z", commit))
    paths = sorted({*changed, *_paths(_git(root, "ls-files", "--others", "--exclude-standard", "-z"))})
    return Changes(since, paths, [path for path in paths if not (root / path).is_file()])


def existing_files(root: Path) -> Sequence[str]:
    """Tracked and untracked files, without ignored ones.

    Raises: GitFailed.
    """
    listed = _paths(_git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"))
    return sorted({path for path in listed if (root / path).is_file()})


def _find_base(root: Path, base: str) -> tuple[str, str]:
    """Its name, and the commit at which HEAD left it."""
    if _git(root, "rev-parse", "--abbrev-ref", "HEAD").strip() == base:
        base = f"origin/{base}"
        if not _exists(root, base):
            return "HEAD", "HEAD"
    elif not _exists(root, base):
        raise GitFailed(f"this checkout has no branch {base}: fetch it, or name another: make test-changed BASE=…")
    try:
        return base, _git(root, "merge-base", base, "HEAD").strip()
    except GitFailed:
        raise GitFailed(f"{base} and HEAD have no common ancestor in this checkout: fetch more history") from None


def _exists(root: Path, branch: str) -> bool:
    try:
        return bool(_git(root, "rev-parse", "--verify", "--quiet", f"{branch}^{{commit}}"))
    except GitFailed:
        return False


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise GitFailed(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _paths(listed: str) -> list[str]:
    return [path for path in listed.split("\0") if path]
