"""CEL rules of tenant networks: addresses and prefixes of either family, tenants, functions of a card.

As in `rules.py`: a rule passes on what another one of its field already refuses. Source: Kubernetes, "Common Expression
Language in Kubernetes", libraries ip and cidr; RFC 3021 and RFC 6164 (links of two addresses).
"""

from __future__ import annotations

from typing import Final

from provisioner.api.machinery.rules import IPV4_RULES
from provisioner.api.machinery.schema import CelRule

ADDRESS_LENGTH: Final = 39
PREFIX_LENGTH: Final = 43

_CANONICAL: Final = "in lower case, without needless zeros"
ADDRESS_RULES: Final = (
    CelRule(
        "isIP(self) && ip.isCanonical(self)",
        f"the value is no IP address {_CANONICAL}: write it as 10.1.0.3 or fd00:1::3",
        expression=f"'\\'' + self + '\\' is no IP address {_CANONICAL}: write it as 10.1.0.3 or fd00:1::3'",
    ),
)

PREFIX_RULES: Final = (
    CelRule(
        "isCIDR(self)",
        "the value is no subnet: write it as 10.1.0.0/16 or fd00:1::/64",
        expression="'\\'' + self + '\\' is no subnet: write it as 10.1.0.0/16 or fd00:1::/64'",
    ),
    CelRule(
        "!isCIDR(self) || ip.isCanonical(self.split('/')[0])",
        f"the subnet is not written {_CANONICAL}: write it as fd00:1::/64",
        expression=f"'subnet ' + self + ' is not written {_CANONICAL}: write it as fd00:1::/64'",
    ),
    CelRule(
        "!isCIDR(self) || cidr(self) == cidr(self).masked()",
        "the subnet has host bits set: write its network address, such as 10.1.0.0/16",
        expression="'subnet ' + self + ' has host bits set: write its network address, such as 10.1.0.0/16'",
    ),
)

_NOBODYS: Final = (
    *("127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "0.0.0.0/8"),
    *("::/127", "fe80::/10", "ff00::/8"),
)
_IS_IN_UNUSABLE: Final = " || ".join(f"cidr('{taken}').containsCIDR(self)" for taken in _NOBODYS)
_UNUSABLE: Final = " || ".join((_IS_IN_UNUSABLE, *(f"cidr(self).containsCIDR('{taken}')" for taken in _NOBODYS)))
ROUTE_RULES: Final = (
    *PREFIX_RULES,
    CelRule(
        f"!isCIDR(self) || !({_IS_IN_UNUSABLE})",
        "a route may not lead to loopback, link-local or multicast addresses: use addresses such as 192.168.7.0/24",
        expression="'route to ' + self + ' leads to loopback, link-local, multicast or reserved addresses, which "
        "cannot be routed: use addresses such as 192.168.7.0/24'",
    ),
)
"""A default route is one, though it includes those."""
TENANT_SUBNET_RULES: Final = (
    *PREFIX_RULES,
    CelRule(
        f"!isCIDR(self) || !({_UNUSABLE})",
        "a VPC may not hold loopback, link-local or multicast addresses: use addresses such as 10.1.0.0/16",
        expression="'subnet ' + self + ' holds loopback, link-local or multicast addresses, which cannot be routed: "
        "use one such as 10.1.0.0/16 or fd00:1::/64'",
    ),
    CelRule(
        "!isCIDR(self) || (cidr(self).ip().family() == 4 ? cidr(self).prefixLength() >= 8 && "
        "cidr(self).prefixLength() <= 30 : cidr(self).prefixLength() >= 32 && cidr(self).prefixLength() <= 126)",
        "a VPC's subnet has a prefix length from 8 to 30 (IPv4) or from 32 to 126 (IPv6): each attachment takes two "
        "addresses of it",
    ),
)

FUNCTION_PATTERN: Final = "^pf[0-9](vf([0-9]|[1-9][0-9]{1,2}))?$"
FUNCTION_RULES: Final = (
    CelRule(
        f"self.matches('{FUNCTION_PATTERN}')",
        "the value is no function of a card: write pf0 for a physical one, pf0vf3 for a virtual one",
        expression="'\\'' + self + '\\' is no function of a card: write pf0 for a physical one, pf0vf3 for a virtual '"
        " + 'one'",
    ),
)

TENANT_RULES: Final = (
    CelRule(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "a tenant is the name of its namespace: lower-case letters, digits and '-'",
        expression="'\\'' + self + '\\' is no name of a namespace, which a tenant is known by: use lower-case letters, "
        'digits and "-"\'',
    ),
)

_NO_HOSTS: Final = " || ".join(
    f"cidr('{taken}').containsIP(self)" for taken in ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")
)
VTEP_RULES: Final = (
    *IPV4_RULES,
    CelRule(
        f"!isIP(self) || ip(self).family() != 4 || !({_NO_HOSTS})",
        "no card can have that address on the underlay, and all others of its VPCs would be told to send there: use "
        "one such as 10.100.0.11",
        expression="'no card can have the address ' + self + ' on the underlay, and all others of its VPCs would be "
        "told to send there: use one such as 10.100.0.11'",
    ),
)
