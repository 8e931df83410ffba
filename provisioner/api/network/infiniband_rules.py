"""CEL rules of InfiniBand: GUIDs of ports and P_Keys, each written in one way.

Source: InfiniBand Architecture Specification 1.7, 10.9.1 (P_Keys have 15 bits and one of membership) and 14.2.5.7.
"""

from __future__ import annotations

from typing import Final

from provisioner.api.machinery.schema import CelRule, FieldSchema

GUID_PATTERN: Final = "^0x[0-9a-f]{16}$"
PKEY_PATTERN: Final = "^0x[0-9a-f]{4}$"
FIRST_PKEY: Final = 0x0001
LAST_PKEY: Final = 0x7FFE
"""Those between the invalid one, 0x0000, and that of the default partition."""
DEFAULT_PKEY: Final = 0x7FFF
"""Of the partition that a subnet manager makes by itself."""

GUID_RULES: Final = (
    CelRule(
        f"self.matches('{GUID_PATTERN}')",
        "a port's GUID is 0x and 16 lower-case hexadecimal digits: write it as 0x506b4b0300a1b200 (ibstat, Port GUID)",
        expression="'GUID ' + self + ' is not 0x and 16 lower-case hexadecimal digits: write it as ' + "
        "[self.lowerAscii().replace('0x', '').replace(':', '')]"
        ".map(d, d.matches('^[0-9a-f]{16}$') ? '0x' + d : '0x506b4b0300a1b200')[0]",
    ),
    CelRule(
        "self != '0x0000000000000000' && self != '0xffffffffffffffff'",
        "the GUID is all zero or all one, which no port has: read it off the card (ibstat, Port GUID)",
    ),
)

GUID: Final = FieldSchema(doc="GUID of a port, 0x and 16 digits.", max_length=18, pattern=GUID_PATTERN)
