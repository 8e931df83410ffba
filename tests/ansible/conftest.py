"""The collection, built and installed as its users do it, once."""

from __future__ import annotations

import pytest

from tests.ansible.runs import SOURCE, Installed


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """From `ansible-galaxy collection build` and `install`, of what git has or would add."""
    folder = tmp_path_factory.mktemp("collection")
    installed = Installed(folder / "collections", folder / "home")
    for words in (
        ("build", SOURCE, "--output-path", folder),
        ("install", folder / f"provisioner-provisioner-{version()}.tar.gz", "--offline", "-p", installed.collections),
    ):
        ran = installed.command("ansible-galaxy", "collection", *words)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    return installed


def version() -> str:
    import provisioner

    return provisioner.__version__
