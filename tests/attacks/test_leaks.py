"""What finds leaks finds them, however they are written, and finds none where there is none."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from provisioner.join.tokens.mint import mint_token
from tests.attacks.leaks import Leak, Sought, core_bytes_allowed, dumped_cores, secret_of_key, written_forms

SECRET = "s3cr+t/of?the BMC"

WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a line of a log": lambda secret: f'{{"event": "asked", "password": "{secret}"}}\n',
    "in base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "as a part of something in base64": lambda secret: base64.b64encode(f"root:{secret}@host".encode()).decode(),
    "in base64 of a URL": lambda secret: base64.urlsafe_b64encode(f"a{secret}".encode()).decode(),
    "in a URL": lambda secret: f"https://root:{quote(secret, safe='')}@10.90.0.11/redfish/v1",
    "in hexadecimal digits": lambda secret: secret.encode().hex(),
}


@pytest.mark.parametrize("how", WRITTEN.values(), ids=WRITTEN)
def test_a_secret_in_a_file_is_found_however_it_is_written(tmp_path: Path, how: Callable[[str], str]) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "boot.ipxe").write_text("#!ipxe\necho nothing\n")
    sought = Sought({"BMC password": SECRET})
    assert sought.in_folder(tmp_path) == set()
    leaky = tmp_path / "scripts" / "r01.ipxe"
    leaky.write_text(f"#!ipxe\necho {how(SECRET)}\n")
    assert sought.in_folder(tmp_path) == {Leak("BMC password", str(leaky))}
    assert sought.in_folder(tmp_path, kept=[leaky]) == set()
    assert SECRET not in repr(sought.in_folder(tmp_path))


@given(st.binary(min_size=8, max_size=40), st.binary(max_size=9), st.binary(max_size=9))
def test_base64_of_anything_around_a_secret_is_found(secret: bytes, before: bytes, after: bytes) -> None:
    encoded = base64.b64encode(before + secret + after)
    assert any(form in encoded for form in written_forms(secret))


def test_a_secret_across_the_pieces_of_a_large_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_bytes(bytes((1 << 20) - 5) + SECRET.encode() + bytes(100))
    assert Sought({"password": SECRET}).in_folder(tmp_path) == {Leak("password", str(tmp_path / "console.log"))}


@pytest.mark.programs
def test_a_secret_on_a_command_line_or_in_an_environment_is_found() -> None:
    sought = Sought({"token": SECRET, "other": "another secret"})
    waits = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", waits, f"--token={SECRET}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OTHER": "another secret"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        place = f"/proc/{process.pid}"
        assert sought.in_processes([process.pid]) == {
            Leak("token", f"{place}/cmdline"),
            Leak("other", f"{place}/environ"),
        }
        assert process.stdin is not None
        process.stdin.close()
    assert sought.in_processes([process.pid]) == set(), "a process that has ended has none"


def test_a_search_that_could_find_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no secret"):
        Sought({})
    with pytest.raises(ValueError, match="secret pin has less than 8 bytes"):
        Sought({"pin": "1234"})


def a_key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def test_a_private_key_is_found_in_a_kubeconfig_and_another_one_is_not(tmp_path: Path) -> None:
    mine, other = a_key(), a_key()
    sought = Sought({"key": secret_of_key(mine)})
    for pem, found in ((mine, 1), (other, 0)):
        (tmp_path / "kubeconfig").write_text(json.dumps({"client-key-data": base64.b64encode(pem.encode()).decode()}))
        assert len(sought.in_folder(tmp_path)) == found


def test_core_dumps_are_found_and_other_programs_are_not(tmp_path: Path) -> None:
    (tmp_path / "core.123").write_bytes(b"\x7fELF" + bytes(12) + b"\x04\x00" + bytes(40))
    (tmp_path / "core").write_bytes(b"\x7fELF" + bytes(12) + b"\x02\x00" + bytes(40))
    (tmp_path / "core.md").write_text("words")
    assert dumped_cores(tmp_path) == [tmp_path / "core.123"]


@pytest.mark.programs
@pytest.mark.parametrize(("limit", "allowed"), [("0", 0), ("1", 512), ("unlimited", None)])
def test_what_a_core_dump_may_have_is_read(limit: str, allowed: int | None) -> None:
    command = ["sh", "-c", f"ulimit -S -c {limit} && echo up && read x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.readline() == b"up\n":  # a hard limit of the machine's may forbid more than 0
            found = core_bytes_allowed(process.pid)
            assert found == allowed or (limit == "1" and found == 1024)
        else:
            assert limit != "0"
        assert process.stdin is not None
        process.stdin.close()


def test_a_token_in_a_log_is_found_without_the_type_that_keeps_it_out() -> None:
    token = mint_token()
    sought = Sought({"token": token.secret.reveal()})
    for value, found in ((token, 0), (token.secret, 0), (token.secret.reveal(), 1)):
        written = io.StringIO()
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(written))
        structlog.get_logger().info("handed out", token=value)
        assert len(sought.in_bytes(written.getvalue().encode(), "log")) == found
