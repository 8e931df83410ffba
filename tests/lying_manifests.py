"""Manifests that a builder would not write, as the lines of their format and their layers; the machine refuses each."""

from __future__ import annotations

from tests.signed_image import line

TWO = "provisioner-image 2"
BASE, DRIVER = line("layer.base", b"base"), line("layer.driver", b"driver")
DIGEST = BASE.split()[1]


def one(text: str) -> tuple[str, list[str]]:
    """A line behind a right one."""
    return TWO, [BASE, text]


LYING_MANIFESTS: dict[str, tuple[str, list[str]]] = {
    "no layer": (TWO, []),
    "seventeen layers": (TWO, [line(f"layer.l{number}", b"%d" % number) for number in range(17)]),
    "a name twice": one(line("layer.base", b"other")),
    "a layer under two names": one(line("layer.driver", b"base")),
    "no name": one(DRIVER.replace("driver", "")),
    "a name with a path": one(DRIVER.replace("driver", "../driver")),
    "a name with a colon": one(DRIVER.replace("driver", "a:b")),
    "a name in capitals": one(DRIVER.replace("driver", "Driver")),
    "a name that begins with a dash": one(DRIVER.replace("driver", "-o")),
    "a name that ends with a dash": one(DRIVER.replace("driver", "o-")),
    "a name of 33 letters": one(DRIVER.replace("driver", "d" * 33)),
    "a digest with a path": one(f"layer.driver {'../' * 20}etc/ 6"),
    "a digest that is short": one(f"layer.driver {'ab' * 31} 6"),
    "a digest that is long": one(f"layer.driver {'ab' * 33} 6"),
    "a digest in capitals": one(f"layer.driver {'AB' * 32} 6"),
    "no digest": one("layer.driver 6"),
    "no size": one(f"layer.driver {'ab' * 32}"),
    "a size of nothing": one(f"layer.driver {'ab' * 32} 0"),
    "a size in octal": one(f"layer.driver {'ab' * 32} 0777"),
    "a size below nothing": one(f"layer.driver {'ab' * 32} -6"),
    "a size that is a name": one(f"layer.driver {'ab' * 32} root_bytes"),
    "a size that no sum can hold": one(f"layer.driver {'ab' * 32} {'9' * 19}"),
    "a size of 16 digits": one(f"layer.driver {'ab' * 32} {'9' * 16}"),
    "one word too many": one(f"{DRIVER} 7"),
    "layers and a root": one(line("root", b"root")),
    "layers in format 1": ("provisioner-image 1", [BASE]),
    "a root and layers in format 1": ("provisioner-image 1", [line("root", b"root"), DRIVER]),
    "two roots": ("provisioner-image 1", [line("root", b"root"), line("root", b"other")]),
    "no root in format 1": ("provisioner-image 1", []),
    "a format to come": ("provisioner-image 3", [BASE, DRIVER]),
    "two formats": (TWO, [BASE, "provisioner-image 1"]),
    "no format": ("recipe-of image", [BASE]),
}
HONEST_MANIFESTS: dict[str, tuple[str, list[str]]] = {
    "one layer": (TWO, [BASE]),
    "not in the order of names": (TWO, [DRIVER, BASE]),
    "sixteen layers of the longest names": (TWO, [line(f"layer.{'n' * 30}{n:02}", b"%d" % n) for n in range(16)]),
    "the largest sizes": (TWO, [f"layer.l{n} {n:064x} {'9' * 15}" for n in range(16)]),
    "a name of one letter": (TWO, [line("layer.b", b"base")]),
    "a root": ("provisioner-image 1", [line("root", b"root")]),
}
