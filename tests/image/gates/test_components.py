from __future__ import annotations

from pathlib import Path

from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.read.components import components
from tests.image.gates.samples import go_program, tree_of

OWN = "usr/lib/python3/dist-packages/provisioner"
KUBELET = ["mod\tk8s.io/kubernetes\tv1.36.3\t"]


def package(name: str, *files: str) -> InstalledPackage:
    return InstalledPackage(
        name=name, version="1", architecture="amd64", source=name, source_version="1", files=tuple(files)
    )


def test_each_file_is_somebodys(tmp_path: Path) -> None:
    files = {
        "usr/bin/runc": go_program(KUBELET),
        "usr/bin/kubelet": go_program(KUBELET),
        "usr/bin/plain": go_program(["path\tcommand-line-arguments"]),
        "usr/lib/python3/json.py": "",
        "usr/lib/python3/__pycache__/json.cpython-313.pyc": "",
        "usr/lib/python3/__pycache__/data.txt": "",
        "usr/lib/python3/left.pyc": "",
        f"{OWN}/node/__init__.py": "",
        f"{OWN}/node/__pycache__/__init__.cpython-313.pyc": "",
        "usr/lib/modules/6.12/kernel/a.ko": "",
        "usr/lib/modules/6.12/kernel/b.ko": "",
        "usr/lib/modules/6.12/updates/nvidia.ko": "",
        "usr/lib/modules/6.12/modules.dep": "",
        "etc/units": "",
    }
    linux = package("linux", "usr/lib/modules/6.12/kernel/a.ko", "usr/lib/modules/6.12/kernel/b.ko", "usr/share/x.ko")
    packages = [
        package("runc", "usr/bin/runc", "usr/lib/gone"),
        package("python", "usr/lib/python3/json.py", "usr/lib/python3/left.py"),
        linux,
        package("driver", "usr/lib/modules/6.12/updates/nvidia.ko", "opt/1.ko", "opt/2.ko", "opt/3.ko"),
    ]
    tree = tree_of(tmp_path, files, {"usr/bin/link": "runc"})
    assert components(tree, packages) == {
        "usr/bin/runc": "runc",
        "usr/bin/kubelet": "k8s.io/kubernetes",
        "usr/bin/plain": "recipe",
        "usr/bin/link": "recipe",
        "usr/lib/python3/json.py": "python",
        "usr/lib/python3/__pycache__/json.cpython-313.pyc": "python",
        "usr/lib/python3/__pycache__/data.txt": "recipe",
        "usr/lib/python3/left.pyc": "recipe",
        f"{OWN}/node/__init__.py": "provisioner",
        f"{OWN}/node/__pycache__/__init__.cpython-313.pyc": "provisioner",
        "usr/lib/modules/6.12/kernel/a.ko": "linux",
        "usr/lib/modules/6.12/kernel/b.ko": "linux",
        "usr/lib/modules/6.12/updates/nvidia.ko": "driver",
        "usr/lib/modules/6.12/modules.dep": "linux",
        "etc/units": "recipe",
    }
