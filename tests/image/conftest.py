"""A base and an image, built once a run from the cache that a demo on this machine uses, too."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import provisioner
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.assembly.build import BuildRequest, Built, build_image
from provisioner.image.assembly.stage1 import pack_stage1
from provisioner.image.base import Base
from provisioner.image.finished.sign import SecretKey
from provisioner.image.inputs import base_fingerprint
from provisioner.image.mirror import choose_archives, read_sources
from provisioner.image.plan import Choices
from provisioner.image.recipe import Recipe, read_recipe
from provisioner.image.root import Ingredients
from provisioner.image.tools.foreign import find_foreign
from tests.image.samples import CPU
from tests.image.stage1_shell import Stage1, unpack_stage1
from tests.tools import CACHE, installed, missing, need_root

if TYPE_CHECKING:
    from lab.binaries.obtain import Binaries


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return read_recipe(CPU)


@pytest.fixture(scope="session")
def signing_key() -> SecretKey:
    """Always the same one, so that the image of these tests is found in the cache the next time."""
    return SecretKey.generate(lambda size: b"t" * size)


@pytest.fixture(scope="session")
def join_ca() -> Path:
    """A CA certificate that is kept with the cache, for the same reason. Nobody has its key."""
    file = CACHE / "image-tests" / "join-ca.pem"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        key, name = (
            ec.generate_private_key(ec.SECP256R1()),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")]),
        )
        start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start.replace(year=2046))
        file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture(scope="session")
def request_of_tests(
    recipe: Recipe, signing_key: SecretKey, join_ca: Path, binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> BuildRequest:
    """A build of the real recipe for Debian. 1 to 2 minutes the first time."""
    need_root("build an image")
    installed("mmdebstrap")
    distribution = recipe.distribution("debian", "x86_64")
    try:
        archives = choose_archives(distribution, read_sources())
    except NeedsHuman as error:
        missing(f"a mirror of Debian ({error})", "add one to APT's sources")
    return BuildRequest(
        recipe=recipe,
        choices=Choices(architecture="x86_64", distribution=distribution, archives=archives),
        ingredients=Ingredients(
            architecture="x86_64",
            kubelet=binaries.kubelet,
            join_ca=join_ca,
            agent=Path(provisioner.__file__).parent,
        ),
        key=signing_key,
        output=CACHE / "image-tests" / "store",
        cache=CACHE / "image-build",
    )


@pytest.fixture(scope="session")
def built(request_of_tests: BuildRequest) -> Built:
    """The image; 1 to 2 minutes the first time on a machine, less when only code has changed."""
    return build_image(request_of_tests, lambda phase, outcome, seconds: print(phase, outcome, f"{seconds:.1f} s"))


@pytest.fixture(scope="session")
def stage1_key() -> SecretKey:
    """That the stage-1 in `stage1` asks for."""
    return SecretKey.generate(lambda size: b"m" * size)


@pytest.fixture(scope="session")
def stage1(
    request: pytest.FixtureRequest,
    request_of_tests: BuildRequest,
    recipe: Recipe,
    stage1_key: SecretKey,
    tmp_path_factory: pytest.TempPathFactory,
) -> Stage1:
    """The recipe's stage-1 in a chroot."""
    need_root("enter a chroot")
    folder = request_of_tests.cache / "base" / base_fingerprint(recipe, request_of_tests.choices)
    if not folder.is_dir():
        request.getfixturevalue("built")
    work = tmp_path_factory.mktemp("stage1")
    packed = pack_stage1(recipe, Base(folder), stage1_key.public, find_foreign("x86_64"))
    (work / "stage1.img").write_bytes(packed)
    return Stage1(unpack_stage1(work / "stage1.img", work / "tree"), windows=4)
