"""CEL rules that several kinds share: what a value must look like, in words that say how to write it.

A rule on a field sees the value as `self`. Where one rule presupposes another (a CIDR without host bits must be a CIDR)
it passes on what the other already refuses, so that a person reads one message for one mistake.
Source: Kubernetes, "Common Expression Language in Kubernetes", libraries ip, cidr, url, format.
"""

from __future__ import annotations

from typing import Final

from provisioner.api.machinery.schema import CelRule, FieldSchema
from provisioner.api.machinery.values import MAC_PATTERN

_BARE_MAC: Final = "self.lowerAscii().replace('-', '').replace(':', '').replace('.', '').replace(' ', '')"
_WITH_COLONS: Final = " + ':' + ".join(f"d.substring({i}, {i + 2})" for i in range(0, 12, 2))

MAC_RULES: Final = (
    CelRule(
        f"self.matches('{MAC_PATTERN}')",
        "a MAC address is six bytes in lower case with colons: write it as 52:54:00:12:34:56",
        expression=(
            "'MAC address ' + self + ' is not six bytes in lower case with colons: write it as ' + "
            f"[{_BARE_MAC}].map(d, d.matches('^[0-9a-f]{{12}}$') ? {_WITH_COLONS} : '52:54:00:12:34:56')[0]"
        ),
    ),
    CelRule(
        "!self.matches('^[0-9a-f][13579bdf]:')",
        "the MAC address is a multicast address, which no interface has: use the address of the interface that boots",
        expression="'MAC address ' + self + ' is a multicast address, which no interface has: "
        "use the address of the interface that boots'",
    ),
    CelRule("self != '00:00:00:00:00:00'", "the MAC address is all zero: use the address of the interface that boots"),
)

IPV4_RULES: Final = (
    CelRule(
        "isIP(self) && ip(self).family() == 4",
        "the value is not an IPv4 address: write it as 10.80.0.21",
        expression="'\\'' + self + '\\' is not an IPv4 address: write it as 10.80.0.21' + "
        "(self.contains('/') ? ', without the prefix length' : '')",
    ),
)

_IS_CIDR: Final = "isCIDR(self) && cidr(self).ip().family() == 4"
CIDR_RULES: Final = (
    CelRule(
        _IS_CIDR,
        "the value is not an IPv4 subnet: write it as 10.80.0.0/24",
        expression="'\\'' + self + '\\' is not an IPv4 subnet: write it as 10.80.0.0/24'",
    ),
    CelRule(
        f"!({_IS_CIDR}) || cidr(self) == cidr(self).masked()",
        "the subnet has host bits set: write its network address",
        expression="'subnet ' + self + ' has host bits set: write its network address, such as 10.80.0.0/24'",
    ),
    CelRule(
        f"!({_IS_CIDR}) || (cidr(self).prefixLength() >= 8 && cidr(self).prefixLength() <= 30)",
        "a subnet in which servers boot has a prefix length from 8 to 30",
    ),
)

LABEL_PATTERN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN_PATTERN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

AMOUNT_PATTERN: Final = r"^(0|[1-9][0-9]{0,5})$|^(0|[1-9][0-9]?|100)%$"
"""A count, or a share in percent."""

NAME_RULES: Final = (
    CelRule(
        f"self.matches('{SUBDOMAIN_PATTERN}')",
        "the value is not an object's name: lower-case letters, digits, '-' and '.', such as r01",
        expression="'\\'' + self + '\\' is not an object\\'s name: use lower-case letters, digits, \"-\" and \".\", "
        "beginning and ending with a letter or digit'",
    ),
)

LABEL_RULES: Final = (
    CelRule(
        f"self.matches('{LABEL_PATTERN}')",
        "the value must be lower-case letters, digits and '-', such as boot",
        expression="'\\'' + self + '\\' must be lower-case letters, digits and \"-\", such as boot' + "
        "(self.contains('.') ? '; a dot is not allowed here' : '')",
    ),
)

LABEL_VALUE_RULES: Final = (
    CelRule(
        "!format.labelValue().validate(self).hasValue()",
        "the value becomes a label's value: at most 63 letters, digits, '-', '_' and '.', such as dc1-a",
        expression="'\\'' + self + '\\' becomes a label\\'s value: use letters, digits, \"-\", \"_\" and \".\", "
        "such as dc1-a'",
    ),
)

PRINTABLE_RULES: Final = (
    CelRule(
        "self.matches('^[!-~]([ -~]*[!-~])?$')",
        "the value must be printable ASCII without spaces at its ends: "
        "copy it again from the label or the packing list",
    ),
)

UUID_RULES: Final = (
    CelRule(
        "self.matches('^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')",
        "a system UUID is 32 lower-case hexadecimal digits: write it as 4c4c4544-0031-3010-8054-b2c04f4e4d32",
        expression="'system UUID ' + self + ' is not 32 lower-case hexadecimal digits in five groups: write it as ' + "
        "(self.lowerAscii().matches('^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$') ? self.lowerAscii() : "
        "'4c4c4544-0031-3010-8054-b2c04f4e4d32')",
    ),
)


CERTIFICATE_RULES: Final = (
    CelRule(
        "self.contains('-----BEGIN CERTIFICATE-----') && !self.contains('PRIVATE KEY')",
        "the certificate must be PEM that begins with -----BEGIN CERTIFICATE-----, and no private key",
    ),
)


def digest_rules(source: str) -> tuple[CelRule, ...]:
    """`source`: where a person finds the digest."""
    return (
        CelRule(
            "self.matches('^sha256:[0-9a-f]{64}$')",
            f"a digest is sha256: and 64 lower-case hexadecimal digits: copy it from {source}",
        ),
    )


DIGEST_RULES: Final = digest_rules("the image's manifest")
ENDORSEMENT_KEY_RULES: Final = digest_rules("the packing list, or from kubectl provision attestation")

# The URL ends up in an iPXE script and on a kernel command line: nothing that either of them interprets may be in it.
PLAIN_URL_RULES: Final = (
    CelRule(
        "self.matches('^https?://')",
        "the URL needs its scheme: write it as http://10.80.0.5",
        expression="'\\'' + self + '\\' needs its scheme: write http://' + self",
    ),
    CelRule(
        "!self.matches('^https?://') || self.matches('^https?://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~/-]*)?$')",
        "the URL may hold a host, a port and a path of letters, digits and . _ ~ - only: "
        "write it as http://10.80.0.5:8080/cache",
    ),
)

BMC_HOST: Final = "[][A-Za-z0-9.:-]+"
_IS_UNKNOWN_SCHEME: Final = "{0}.contains('://') && !{0}.matches('^(https?|ipmi)://')"
_LACKS_BRACKETS: Final = "{0}.matches('^((https?|ipmi)://)?[^][/@]*:[^][/@]*:')"


def _written(address: str, *parts: str, example: str) -> str:
    """CEL for how to write an address: the host that it names behind each of `parts`; `example` if it names none.

    It cuts by substring() alone, whose result the API server knows to be no longer than what it was cut from: by
    find() or split() the expression would exceed the cost that a rule may have.
    """
    begin = f"({address}.contains('://') ? {address}.indexOf('://') + 3 : 0)"
    authority = f"({address} + '/').substring({begin}, ({address} + '/').indexOf('/', {begin}))"
    host = (
        "isIP(h) && ip(h).family() == 6 ? '[' + h + ']' : "
        "h.matches('^[[][0-9A-Fa-f:.]+[]]') ? h.substring(0, h.indexOf(']') + 1) : "
        "h.matches('^[A-Za-z0-9.-]+(:[^:]*)?$') ? (h + ':').substring(0, (h + ':').indexOf(':')) : ''"
    )
    written = " + ".join(f"{part} + h" for part in parts)
    return f"[{authority}].map(h, {host}).map(h, h == '' ? 'such as {example}' : 'write ' + {written})[0]"


_BY_REDFISH: Final = "(self.startsWith('http://') ? 'http://' : 'https://')"
_BY_EITHER: Final = _written(
    "self",
    _BY_REDFISH,
    "', or with protocol IPMI ipmi://'",
    example="https://10.90.0.11, or with protocol IPMI ipmi://10.90.0.11",
)
BMC_ADDRESS_RULES: Final = (
    CelRule(
        "!self.contains('@')",
        "credentials do not belong in the BMC's address, which everybody may read: "
        "put them into a Secret and name it in credentialsName",
    ),
    CelRule(
        f"self.contains('@') || !({_IS_UNKNOWN_SCHEME.format('self')})",
        "the scheme of a BMC's address is https://, http:// or, with protocol IPMI, ipmi://, in lower case",
        expression="'BMC address \\'' + self + '\\' has a scheme that is none of https://, http:// and ipmi://, in "
        f"lower case: ' + {_BY_EITHER}",
    ),
    CelRule(
        "!self.matches('^https?://') || self.contains('@') || "
        f"self.matches('^https?://{BMC_HOST}(/[A-Za-z0-9._~/-]*)?$')",
        "the address of a BMC is a scheme, a host and perhaps a port and a path: such as https://10.90.0.11",
        expression="'the address of a BMC is a scheme, a host and perhaps a port and a path: ' + "
        + _written("self", _BY_REDFISH, example="https://10.90.0.11"),
    ),
    CelRule(
        f"!self.startsWith('ipmi://') || self.contains('@') || self.matches('^ipmi://{BMC_HOST}/?$')",
        "the address of a BMC by IPMI is a host and perhaps a port: such as ipmi://10.90.0.11",
        expression="'the address of a BMC by IPMI is a host and perhaps a port: ' + "
        + _written("self", "'ipmi://'", example="ipmi://10.90.0.11"),
    ),
    CelRule(
        f"!{_LACKS_BRACKETS.format('self')}",
        "an IPv6 address needs brackets: such as https://[fd00::12], or with protocol IPMI ipmi://[fd00::12]",
        expression=f"'an IPv6 address needs brackets: ' + {_BY_EITHER}",
    ),
)

_IS_IPMI: Final = "self.protocol == 'IPMI'"
_IS_REFUSED_ALREADY: Final = (
    f"self.address.contains('@') || {_LACKS_BRACKETS.format('self.address')} || self.address.contains('://') && "
    f"!self.address.matches('^(https?://|ipmi://{BMC_HOST}/?$)')"
)
BMC_PROTOCOL_RULES: Final = (
    CelRule(
        f"{_IS_IPMI} || self.address.matches('^https?://') || {_IS_REFUSED_ALREADY}",
        "the address of a BMC needs its scheme, such as https://10.90.0.11",
        field=".address",
        expression=(
            "'BMC address \\'' + self.address + '\\' ' + (self.address.startsWith('ipmi://') ? "
            "'is for IPMI: set protocol to IPMI, or write https://' + self.address.substring(7) : "
            "'needs its scheme: write https://' + self.address)"
        ),
    ),
    CelRule(
        f"!({_IS_IPMI}) || self.address.matches('^(ipmi://)?{BMC_HOST}/?$') || {_IS_REFUSED_ALREADY}",
        "protocol IPMI needs an address such as ipmi://10.90.0.11",
        field=".address",
        expression=(
            "'BMC address \\'' + self.address + '\\' is not for protocol IPMI: ' + "
            + _written("self.address", "'ipmi://'", example="ipmi://10.90.0.11")
            + " + (self.address.startsWith('http') ? ', or set protocol to Redfish' : '')"
        ),
    ),
    CelRule(
        f"!({_IS_IPMI}) || !has(self.certificate)",
        "IPMI knows no certificates: leave certificate out, or set protocol to Redfish",
        field=".certificate",
    ),
    CelRule(
        f"!({_IS_IPMI}) || !has(self.systemID)",
        "IPMI knows one system only: leave systemID out, or set protocol to Redfish",
        field=".systemID",
    ),
)

# Arguments are rendered into an iPXE script, whose shell expands ${…} and knows quotes, #, &&, || and ;.
_TELLTALE_WORDS: Final = "(?i)(passw|secret|token|credential|api[-_]?key|private[-_]?key)"
KERNEL_ARGUMENT: Final = FieldSchema(
    doc="One argument, such as iommu.passthrough=1.",
    min_length=1,
    max_length=256,
    rules=(
        CelRule(
            "self.matches('^[A-Za-z0-9][A-Za-z0-9._,:=/@%+*~^-]*$')",
            "a kernel argument is one word of letters, digits and . _ , : = / @ % + * ~ ^ -: it becomes part of an "
            "iPXE script, where spaces, quotes, $, #, & and ; have a meaning; give each argument its own list element",
        ),
        CelRule(
            "!self.matches('^(provisioner[.]|systemd[.]machine_id=|initrd=)')",
            "arguments that begin with provisioner., systemd.machine_id= and initrd= are set for each server: "
            "leave this one out",
            expression="'kernel argument ' + self + ' is set for each server by the provisioner: leave it out'",
        ),
        CelRule(
            f"!self.split('=', 2)[0].matches('{_TELLTALE_WORDS}')",
            "a kernel argument looks like a secret; boot scripts are served to everybody who asks: "
            "put secrets into a Secret that a pod mounts",
        ),
    ),
)


def ipv4_number(text: str) -> str:
    """CEL for the number of the IPv4 address that the CEL expression `text` holds."""
    return " + ".join(f"int({text}.split('.')[{i}]) * {256 ** (3 - i)}" for i in range(4))
