from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.image.gates.read.secrets import find_secrets
from provisioner.image.gates.secrets import check_secrets
from tests.image.gates.samples import elf, told, tree_of

KEY = b"-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIGxxxxxxxxxxxxxxx\n"
CLEAN: dict[str, bytes | str] = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:*:1:1::/:/usr/sbin/nologin\n",
    "etc/shadow": "root:*:20454:0:99999:7:::\ndaemon:!*:20454:0:99999:7:::\nsystemd-network:!:20454::::::\n",
    "etc/gshadow": "root:*::\ntty:!::\nusers:::\n",
    "etc/machine-id": "",
    "etc/ssl/certs/ca.pem": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "usr/bin/openssl": elf(behind=b"-----BEGIN PRIVATE KEY-----\0-----BEGIN RSA PRIVATE KEY-----\0"),
    "usr/lib/python3/ssl.py": 'BEGIN = "-----BEGIN PRIVATE KEY-----"\n',
}


def test_a_root_without_secrets_passes(tmp_path: Path) -> None:
    assert told(check_secrets(tree_of(tmp_path, CLEAN), {})) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("private key", KEY),
        ("private key", b"-----BEGIN OPENSSH PRIVATE KEY-----\r\nb3BlbnNzaC1rZXktdjEAAAAA\n"),
        ("private key", b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"),
        ("private key", b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQdGBF5x0123456789abcd\n"),
        ("private key", b'{"key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG"}'),
        ("signify secret key", b"untrusted comment: provisioner image secret key\nRWRC"),
        ("bootstrap token", b'token: "abcdef.0123456789abcdef"'),
        ("bootstrap token", b"abcdef.0123456789abcdef"),
        ("bootstrap token", b"kubeadm join 10.0.0.1 --token x1y2z3.0123456789abcdef\n"),
        ("age secret key", b"AGE-SECRET-KEY-1" + b"Q" * 42),
        ("GitHub token", b"ghp_" + b"a1" * 18),
        ("GitHub token", b"github_pat_" + b"a1" * 30),
        ("NGC API key", b"nvapi-" + b"a" * 60),
        ("JSON web token", b"eyJhbGciOiJSUzI1NiIsImtpZCI6I.eyJpc3MiOiJrdWJlcm5ldGVzL3Nl." + b"s" * 43),
        ("AWS access key", b"aws_access_key_id = AKIAIOSFODNN7EXAMPLE\n"),
        ("kubeconfig with a key", b"    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURQ==\n"),
        ("kubeconfig with a token or password", b"current-context: a\nusers:\n- user:\n    token: 0123456789\n"),
        ("registry credential", b'{"auths": {"nvcr.io": {"auth": "JG9hdXRodG9rZW46"}}}'),
        ("password in an address", b"HTTPS_PROXY=http://ann:hunter22@proxy.example:3128\n"),
    ],
)
def test_what_looks_like_a_secret_is_found(name: str, content: bytes) -> None:
    assert find_secrets(content) == (name,)
    assert find_secrets(b"something before\n" + content + b"\nsomething behind\n") == (name,)


@pytest.mark.parametrize(
    "content",
    [
        b"-----BEGIN PUBLIC KEY-----\nMHcCAQEEIIGxxxxxxxxxxxxxxx\n",
        b"-----BEGIN PRIVATE KEY-----\n",
        b"untrusted comment: provisioner image public key\nRWRC",
        b"system.slicewithsixteen\n",  # two words and a dot, as in the name of a file
        b"import module.implementationab\n",
        b"see abcdef.0123456789abcdef.example\n",
        b"/abcdef.0123456789abcdef\n",
        b"apiVersion: v1\nkind: Config\nusers:\n- user:\n    tokenFile: /var/run/token\n",
        b"# http://user:password@proxy.example\n",
        b"http://proxy.example:3128/path\n",
        b"",
    ],
)
def test_what_only_resembles_one_is_not(content: bytes) -> None:
    assert find_secrets(content) == ()


def test_programs_are_searched_for_keys_and_not_for_what_chance_writes_in_them() -> None:
    assert find_secrets(elf(behind=KEY)) == ("private key",)
    assert find_secrets(elf(behind=b"\nabcdef.0123456789abcdef\n")) == ()


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_key_is_found_whatever_is_around_it(before: bytes, behind: bytes) -> None:
    assert "private key" in find_secrets(before + KEY + behind)


def test_a_secret_fails_with_its_path_unless_the_recipe_says_that_all_know_it(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, CLEAN | {"usr/share/tests/vector.pem": KEY})
    assert told(check_secrets(tree, {})) == [("/usr/share/tests/vector.pem", "private key")]
    assert told(check_secrets(tree, {"usr/share/tests/*": "of RFC 9500"})) == []
    assert len(told(check_secrets(tree, {"usr/share/other/*": "of RFC 9500"}))) == 1


@pytest.mark.parametrize(
    "path",
    [
        "etc/ssh/ssh_host_ed25519_key",
        "root/.ssh/id_rsa",
        "etc/provisioner/image.sec",
        "etc/kubernetes/pki/ca.key",
        "root/.netrc",
        "etc/kubernetes/admin.conf",
        "opt/kubeconfig",
        "etc/krb5.keytab",
    ],
)
def test_a_name_that_secrets_have_fails_by_itself(tmp_path: Path, path: str) -> None:
    ((found, observed),) = told(check_secrets(tree_of(tmp_path, CLEAN | {path: "x"}), {}))
    assert found == f"/{path}"
    assert "a name such as secrets have" in observed


@pytest.mark.parametrize(
    "path",
    [
        "etc/hostname",
        "etc/resolv.conf",
        "etc/nvme/hostid",
        "var/lib/systemd/random-seed",
        "var/lib/dbus/machine-id",
        "run/provisioner/request-key",
    ],
)
def test_what_must_be_each_servers_own_fails(tmp_path: Path, path: str) -> None:
    assert told(check_secrets(tree_of(tmp_path, CLEAN | {path: "x"}), {})) == [(f"/{path}", "a file of 1 bytes")]


def test_a_machine_id_that_is_written_down_fails(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, CLEAN | {"etc/machine-id": "0123456789abcdef0123456789abcdef\n"})
    assert told(check_secrets(tree, {})) == [("/etc/machine-id", "a file of 33 bytes")]


@pytest.mark.parametrize(
    ("file", "line", "observed"),
    [
        ("etc/shadow", "root:$y$j9T$abc$def:20454::::::", "account 'root' has a password"),
        ("etc/shadow", "root::20454::::::", "account 'root' has an empty password"),
        ("etc/gshadow", "wheel:$6$abc::", "account 'wheel' has a password"),
        ("etc/passwd", "root::0:0:root:/root:/bin/bash", "account 'root' needs no password"),
        ("etc/passwd", "root:abJnggxhB/yWI:0:0:root:/root:/bin/bash", "account 'root' has its password here"),
    ],
)
def test_an_account_into_which_a_password_leads_fails(tmp_path: Path, file: str, line: str, observed: str) -> None:
    tree = tree_of(tmp_path, CLEAN | {file: f"{CLEAN[file]!s}{line}\n"})
    assert told(check_secrets(tree, {})) == [(f"/{file}", observed)]
