"""Bad objects, each with the words that its author reads, and with a good twin that differs only in the mistake."""

from __future__ import annotations

from typing import Any

from tests.api.bad_attestation import ATTESTATION
from tests.api.bad_cards import CARDS
from tests.api.bad_images import IMAGES
from tests.api.bad_infiniband import INFINIBAND
from tests.api.bad_maintenances import MAINTENANCES, POOL_SETTINGS
from tests.api.bad_networks import NETWORKS
from tests.api.bad_row import Row
from tests.api.objects import address_block, bmc, dpu, ipmi, node_pool, rack, server, subnet

_BORROWS = {
    "nodePoolRef": "slurm",
    "selector": "example.com/lent=true",
    "windows": [{"schedule": "0 20 * * *", "durationSeconds": 36000}],
}


def _mac(bad: str, *words: str) -> Row:
    return Row(
        f"MAC address {bad}",
        server(bootMACAddress=bad),
        server(bootMACAddress="52:54:00:aa:bb:cc"),
        ("spec.bootMACAddress", *words),
    )


def _subnet(mistake: str, bad: dict[str, Any], good: dict[str, Any], *words: str) -> Row:
    return Row(mistake, rack(subnets=[subnet(**bad)]), rack(subnets=[subnet(**good)]), words)


def _argument(bad: str, good: str, *words: str) -> Row:
    return Row(f"kernel argument {bad!r}", node_pool(kernelArguments=[bad]), node_pool(kernelArguments=[good]), words)


def _interface(name: str, number: int) -> dict[str, str]:
    return {"name": name, "macAddress": f"52:54:00:00:00:{number:02x}"}


_ONE_WORD = "a kernel argument is one word"
_EXAMPLE = "write it as 10.80.0.21"

SERVERS = (
    _mac("52:54:00:AA:BB:CC", "lower case with colons", "write it as 52:54:00:aa:bb:cc"),
    _mac("52-54-00-aa-bb-cc", "write it as 52:54:00:aa:bb:cc"),
    _mac("5254.00AA.BBCC", "write it as 52:54:00:aa:bb:cc"),
    _mac("52:54:00:aa:bb", "is not six bytes", "write it as 52:54:00:12:34:56"),
    _mac("01:00:5e:00:00:01", "multicast address", "use the address of the interface that boots"),
    _mac("00:00:00:00:00:00", "all zero"),
    Row("no MAC address", server(bootMACAddress=None), server(), ("spec.bootMACAddress", "Required value")),
    Row(
        "a further interface's MAC address in upper case",
        server(interfaces=[{"name": "eth1", "macAddress": "52:54:00:AA:BB:01"}]),
        server(interfaces=[{"name": "eth1", "macAddress": "52:54:00:aa:bb:01"}]),
        ("spec.interfaces[0].macAddress", "write it as 52:54:00:aa:bb:01"),
    ),
    Row(
        "a further interface repeats the boot interface",
        server(interfaces=[{"name": "eth0", "macAddress": "52:54:00:12:34:56"}]),
        server(interfaces=[{"name": "eth1", "macAddress": "52:54:00:12:34:57"}]),
        ("spec.interfaces", "occurs twice in this server"),
    ),
    Row(
        "two interfaces of one name",
        server(
            interfaces=[
                {"name": "a", "macAddress": "52:54:00:00:00:01"},
                {"name": "a", "macAddress": "52:54:00:00:00:02"},
            ]
        ),
        server(
            interfaces=[
                {"name": "a", "macAddress": "52:54:00:00:00:01"},
                {"name": "b", "macAddress": "52:54:00:00:00:02"},
            ]
        ),
        ("spec.interfaces[1]", "Duplicate value"),
    ),
    Row(
        "accepted without a rack",
        server(rackRef=None, acceptance="Accepted"),
        server(acceptance="Accepted"),
        ("spec.rackRef", "an Accepted server needs spec.rackRef"),
    ),
    Row(
        "an unknown acceptance",
        server(acceptance="Yes"),
        server(acceptance="Rejected"),
        ('"Yes"', '"Pending", "Accepted", "Rejected"'),
    ),
    Row("a dotted name", server("r01.u01"), server("r01-u01"), ("host name", "write r01-u01")),
    Row("a name of 64 characters", server("s" * 64), server("s" * 63), ("at most 63 characters",)),
    Row(
        "a rack that cannot be",
        server(rackRef="Rack 1"),
        server(rackRef="rack-1"),
        ("is not an object's name",),
    ),
    Row("a dotted subnet", server(subnetName="boot.a"), server(subnetName="boot-a"), ("a dot is not allowed here",)),
    Row(
        "an address with prefix",
        server(bootAddress="10.80.0.21/24"),
        server(bootAddress="10.80.0.21"),
        (_EXAMPLE,),
    ),
    Row("an IPv6 boot address", server(bootAddress="fd00::1"), server(bootAddress="10.80.0.21"), (_EXAMPLE,)),
    Row("an octet of 256", server(bootAddress="10.80.0.256"), server(bootAddress="10.80.0.255"), (_EXAMPLE,)),
    Row(
        "a UUID in upper case",
        server(systemUUID="4C4C4544-0031-3010-8054-B2C04F4E4D32"),
        server(systemUUID="4c4c4544-0031-3010-8054-b2c04f4e4d32"),
        ("write it as 4c4c4544-0031-3010-8054-b2c04f4e4d32",),
    ),
    Row(
        "a line break in a serial number",
        server(serialNumber="ABC\n123"),
        server(serialNumber="ABC 123"),
        ("printable ASCII",),
    ),
    Row(
        "an endorsement key without its algorithm",
        server(endorsementKeySHA256="9f" * 32),
        server(endorsementKeySHA256="sha256:" + "9f" * 32),
        ("a digest is sha256:", "from the packing list, or from kubectl provision attestation"),
        unsaid=("manifest",),
    ),
    Row(
        "a new MAC address while accepted",
        server("{}", acceptance="Accepted", bootMACAddress="52:54:00:00:00:02"),
        server("{}", acceptance="Pending", bootMACAddress="52:54:00:00:00:02"),
        ("set spec.acceptance to Pending together with the new address",),
        before=server("{}", acceptance="Accepted"),
    ),
)

BMCS = (
    Row(
        "a BMC without scheme",
        server(bmc=bmc(address="10.90.0.4/redfish/v1")),
        server(bmc=bmc(address="https://10.90.0.4/redfish/v1")),
        ("needs its scheme: write https://10.90.0.4/redfish/v1",),
        unsaid=("by IPMI",),
    ),
    *(
        Row(
            f"a BMC by {scheme}",
            server(bmc=kind(address=f"{scheme}://10.90.0.4/a")),
            server(bmc=kind(address=good)),
            (
                "none of https://, http:// and ipmi://",
                "write https://10.90.0.4, or with protocol IPMI ipmi://10.90.0.4",
            ),
            unsaid=("needs its scheme", "perhaps a port", "is not for", "10.90.0.11"),
        )
        for scheme, kind, good in (
            ("ftp", bmc, "https://10.90.0.4"),
            ("HTTPS", bmc, "https://10.90.0.4"),
            ("IPMI", ipmi, "ipmi://10.90.0.4"),
        )
    ),
    Row(
        "a BMC by plain HTTP",
        server(bmc=bmc(address="http://10.90.0.11")),
        server(bmc=bmc(address="http://10.90.0.11", allowPlainHTTP=True)),
        ("readable on the way", "write https://", "allowPlainHTTP"),
    ),
    Row(
        "credentials in a BMC's address",
        server(bmc=bmc(address="https://root:calvin@10.90.0.11")),
        server(bmc=bmc(credentialsName="r01-u01-bmc")),
        ("credentials do not belong", "credentialsName"),
    ),
    Row(
        "a space in a BMC's address",
        server(bmc=bmc(address="https://10.90.0.11/a b")),
        server(bmc=bmc(address="https://[fd00::11]:8443/redfish")),
        ("a scheme, a host and perhaps a port and a path: write https://10.90.0.11",),
    ),
    Row(
        "no host in a BMC's address",
        server(bmc=bmc(address="https://")),
        server(bmc=bmc()),
        ("such as https://10.90.0.11",),
    ),
    *(
        Row(
            f"an IPv6 address of a BMC without brackets: {address}",
            server(bmc=kind(address=address)),
            server(bmc=kind(address=good)),
            (f"an IPv6 address needs brackets: write {https}://[fd00::12], or with protocol IPMI ipmi://[fd00::12]",),
            unsaid=("needs its scheme", "is for IPMI", "is not for"),
        )
        for address, kind, good, https in (
            ("https://fd00::12", bmc, "https://[fd00::12]", "https"),
            ("http://fd00::12/redfish", bmc, "https://[fd00::12]/redfish", "http"),
            ("fd00::12", bmc, "https://[fd00::12]", "https"),
            ("ipmi://fd00::12", bmc, "https://[fd00::12]", "https"),
            ("fd00::12", ipmi, "[fd00::12]:623", "https"),
            ("ipmi://fd00::12", ipmi, "ipmi://[fd00::12]", "https"),
            ("https://fd00::12", ipmi, "ipmi://[fd00::12]", "https"),
        )
    ),
    Row(
        "an address with colons that is none",
        server(bmc=bmc(address="https://fd00::zz")),
        server(bmc=bmc()),
        ("an IPv6 address needs brackets: such as https://10.90.0.11",),
    ),
    Row(
        "a private key as certificate",
        server(bmc=bmc(certificate="-----BEGIN PRIVATE KEY-----\n")),
        server(bmc=bmc(certificate="-----BEGIN CERTIFICATE-----\n")),
        ("must be PEM", "no private key"),
    ),
    Row(
        "a URL set by IPMI",
        server(bmc=ipmi(bootMethod="UefiHttp")),
        server(bmc=ipmi(bootMethod="Pxe")),
        ("use bootMethod Pxe",),
    ),
    Row(
        "a Redfish address by IPMI",
        server(bmc=ipmi(address="https://10.90.0.4:8443/redfish")),
        server(bmc=ipmi(address="10.90.0.4:6230")),
        ("is not for protocol IPMI: write ipmi://10.90.0.4, or set protocol to Redfish",),
    ),
    Row(
        "an IPMI address by Redfish",
        server(bmc=bmc(address="ipmi://10.90.0.11")),
        server(bmc=ipmi(address="ipmi://[fd00::11]:623")),
        ("is for IPMI", "set protocol to IPMI, or write https://10.90.0.11"),
    ),
    Row(
        "credentials in an IPMI address",
        server(bmc=ipmi(address="ipmi://root:calvin@10.90.0.11")),
        server(bmc=ipmi(credentialsName="r01-u01-bmc")),
        ("credentials do not belong", "credentialsName"),
    ),
    Row(
        "a path in an IPMI address",
        server(bmc=ipmi(address="ipmi://10.90.0.4/redfish")),
        server(bmc=ipmi(address="ipmi://bmc-u11.example.net")),
        ("a host and perhaps a port: write ipmi://10.90.0.4",),
        unsaid=("is not for",),
    ),
    Row(
        "a certificate by IPMI",
        server(bmc=ipmi(certificate="-----BEGIN CERTIFICATE-----\n")),
        server(bmc=ipmi(firmware="BIOS")),
        ("IPMI knows no certificates",),
    ),
    Row(
        "a system id by IPMI",
        server(bmc=ipmi(systemID="1")),
        server(bmc=ipmi(bootMethod="Disk")),
        ("IPMI knows one system only",),
    ),
)

RACKS = (
    _subnet("host bits", {"cidr": "10.80.0.5/24"}, {"cidr": "10.80.0.0/24"}, "10.80.0.5/24 has host bits set"),
    _subnet("no prefix", {"cidr": "10.80.0.0"}, {"cidr": "10.80.0.0/24"}, "write it as 10.80.0.0/24"),
    _subnet(
        "a subnet of one address",
        {"cidr": "10.80.0.1/32", "gateway": "10.80.0.1"},
        {"cidr": "10.80.0.0/30", "gateway": "10.80.0.1"},
        "prefix length from 8 to 30",
    ),
    _subnet(
        "gateway outside",
        {"gateway": "10.81.0.1"},
        {"gateway": "10.80.0.254"},
        "spec.subnets[0].gateway",
        "gateway 10.81.0.1 is not a host address of subnet 10.80.0.0/24",
    ),
    _subnet(
        "gateway is the network", {"gateway": "10.80.0.0"}, {"gateway": "10.80.0.1"}, "is not a host address of subnet"
    ),
    _subnet(
        "range outside",
        {"rangeStart": "10.80.1.10"},
        {"rangeStart": "10.80.0.10"},
        "start of the range 10.80.1.10 is not a host address of subnet 10.80.0.0/24",
    ),
    _subnet(
        "range reversed",
        {"rangeStart": "10.80.0.20", "rangeEnd": "10.80.0.9"},
        {"rangeStart": "10.80.0.9", "rangeEnd": "10.80.0.20"},
        "the range is reversed: 10.80.0.20 comes after 10.80.0.9",
    ),
    _subnet(
        "discovery range reversed",
        {"discoveryRangeStart": "10.80.0.250", "discoveryRangeEnd": "10.80.0.240"},
        {"discoveryRangeStart": "10.80.0.240", "discoveryRangeEnd": "10.80.0.250"},
        "the discovery range is reversed",
    ),
    _subnet(
        "half a discovery range",
        {"discoveryRangeStart": "10.80.0.240"},
        {"discoveryRangeStart": "10.80.0.240", "discoveryRangeEnd": "10.80.0.240"},
        "needs both discoveryRangeStart and discoveryRangeEnd",
    ),
    _subnet(
        "a DNS server by name",
        {"dnsServers": ["dns.example.com"]},
        {"dnsServers": ["10.80.0.1"]},
        "spec.subnets[0].dnsServers[0]",
        "'dns.example.com' is not an IPv4 address",
    ),
    _subnet("four DNS servers", {"dnsServers": ["10.0.0.1"] * 4}, {"dnsServers": ["10.0.0.1"] * 3}, "at most 3 items"),
    _subnet("a dotted subnet name", {"name": "boot.a"}, {"name": "boot-a"}, "a dot is not allowed here"),
    _subnet("an MTU of 100", {"mtu": 100}, {"mtu": 9000}, "greater than or equal to 576"),
    Row(
        "two subnets of one name",
        rack(subnets=[subnet(), subnet(cidr="10.81.0.0/24", gateway="10.81.0.1")]),
        rack(subnets=[subnet(), subnet(name="b", cidr="10.81.0.0/24", gateway="10.81.0.1")]),
        ("spec.subnets[1]", "Duplicate value"),
    ),
    Row(
        "overlapping subnets",
        rack(subnets=[subnet(cidr="10.80.0.0/16"), subnet(name="b", cidr="10.80.7.0/24", gateway="10.80.7.1")]),
        rack(subnets=[subnet(cidr="10.80.0.0/24"), subnet(name="b", cidr="10.80.7.0/24", gateway="10.80.7.1")]),
        ("two subnets of the rack overlap",),
    ),
    Row("no subnet", rack(subnets=[]), rack(), ("spec.subnets",)),
    Row(
        "a cache without scheme",
        rack(cacheURL="10.80.0.5"),
        rack(cacheURL="http://10.80.0.5"),
        ("write http://10.80.0.5",),
    ),
    Row(
        "an iPXE variable in the cache's URL",
        rack(cacheURL="http://10.80.0.5/${net0/mac}"),
        rack(cacheURL="http://10.80.0.5:8080/images"),
        ("the URL may hold a host, a port and a path",),
    ),
    Row(
        "a failure domain that is no label's value",
        rack(failureDomain="room 1"),
        rack(failureDomain="room-1"),
        ("'room 1' becomes a label's value",),
    ),
    Row("a rack's name of 64 characters", rack("r" * 64), rack("r" * 63), ("at most 63 characters",)),
)

DPUS = (
    Row("a DPU without host", dpu(card={"hostRef": None}), dpu(), ("spec.dpu.hostRef", "Required value")),
    Row(
        "NIC mode",
        dpu(card={"mode": "NIC"}),
        dpu(card={"mode": "DPU"}),
        ("INTERNAL_CPU_OFFLOAD_ENGINE=0", "cold power cycle"),
    ),
    Row("an unknown mode", dpu(card={"mode": "Smart"}), dpu(), ('supported values: "DPU", "NIC"',)),
    Row(
        "a DPU that is no arm64 machine",
        dpu(architecture="x86_64"),
        dpu(architecture="arm64"),
        ("spec.architecture", "set spec.architecture to arm64"),
    ),
    Row("a DPU of no architecture", dpu(architecture=None), dpu(), ("set spec.architecture to arm64",)),
    Row("a DPU's tenant", dpu(tenant="blue"), dpu(), ("spec.dpu", "of the server in which the card sits")),
    Row(
        "a DPU with ports on InfiniBand",
        dpu(infinibandPorts=[{"guid": "0x506b4b0300a1b200"}]),
        dpu(),
        ("of the server in which the card sits",),
    ),
    Row("a DPU in itself", dpu("a", card={"hostRef": "a"}), dpu("a"), ("sits in another server",)),
    Row("a dotted name of a DPU", dpu("r01.dpu"), dpu("r01-dpu"), ("write r01-dpu",)),
)

ADDRESS_BLOCKS = (
    Row(
        "a block that is not named after its first address",
        address_block("10.80.0.17"),
        address_block("10.80.0.0"),
        ("named after its first address, such as 10.80.0.0",),
    ),
)

NODE_POOLS = (
    _argument("quiet splash", "quiet", _ONE_WORD, "its own list element"),
    _argument("quiet\nchain http://evil/", "quiet", _ONE_WORD),
    _argument("root=${net0/mac}", "isolcpus=1-5,7", _ONE_WORD),
    _argument("a;b", "earlycon=pl011,0x13010000", _ONE_WORD),
    _argument("a||b", "iommu.passthrough=1", _ONE_WORD),
    _argument("provisioner.join=http://evil", "hugepages=4", "is set for each server by the provisioner"),
    _argument("initrd=evil.img", "mitigations=auto", "is set for each server by the provisioner"),
    _argument("agent.password=hunter2", "agent.log=debug", "looks like a secret"),
    _argument("BOOTSTRAP_TOKEN=abc", "rd.driver.pre=mlx5_core", "looks like a secret"),
    Row("no image", node_pool(imageRef=None), node_pool(), ("spec.imageRef", "Required value")),
    Row(
        "a pool that borrows its own servers",
        node_pool(borrows=[{**_BORROWS, "nodePoolRef": "gpu"}]),
        node_pool(borrows=[_BORROWS]),
        ("a NodePool borrows servers of others",),
    ),
    Row(
        "a borrowing without an end",
        node_pool(borrows=[{**_BORROWS, "windows": []}]),
        node_pool(borrows=[_BORROWS]),
        ("spec.borrows[0].windows", "at least 1"),
    ),
    Row(
        "a label's value with a space",
        node_pool(kubelet={"labels": {"example.com/team": "a b"}}),
        node_pool(kubelet={"labels": {"example.com/team": "a-b"}}),
        ("'a b' becomes a label's value",),
    ),
    Row(
        "a label's key with a space",
        node_pool(kubelet={"labels": {"my team": "a"}}),
        node_pool(kubelet={"labels": {"my-team": "a"}}),
        ("a label's key must be a name with an optional domain",),
    ),
    Row(
        "a label that the provisioner sets",
        node_pool(kubelet={"labels": {"kubernetes.io/hostname": "a"}}),
        node_pool(kubelet={"labels": {"node-role.kubernetes.io/gpu": ""}}),
        ("are set for each Node: leave them out",),
    ),
    Row(
        "a taint without effect",
        node_pool(kubelet={"taints": [{"key": "gpu"}]}),
        node_pool(kubelet={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}),
        ("spec.kubelet.taints[0].effect", "Required value"),
    ),
    Row(
        "a taint that the provisioner puts on and takes off",
        node_pool(kubelet={"taints": [{"key": "provisioner.dev/verification", "effect": "NoExecute"}]}),
        node_pool(kubelet={"taints": [{"key": "example.com/verification", "effect": "NoExecute"}]}),
        ("taints of provisioner.dev are put on and taken off by the provisioner alone: leave them out",),
    ),
    Row(
        "an open kubelet",
        node_pool(kubelet={"configuration": {"authentication": {"anonymous": {"enabled": True}}}}),
        node_pool(kubelet={"configuration": {"maxPods": 200, "evictionHard": {"memory.available": "1Gi"}}}),
        ("are not the pool's to change",),
    ),
    Row(
        "what each machine computes, beside the alignment that it is computed for",
        node_pool(kubelet={"numaAlignment": {}, "configuration": {"reservedSystemCPUs": "0-3"}}),
        node_pool(kubelet={"numaAlignment": {}, "configuration": {"maxPods": 64, "topologyManagerScope": "pod"}}),
        ("reservedSystemCPUs", "leave them out of configuration"),
    ),
    Row(
        "thresholds beside the alignment, whose sums they are part of",
        node_pool(kubelet={"numaAlignment": {}, "configuration": {"evictionHard": {"memory.available": "1Gi"}}}),
        node_pool(kubelet={"numaAlignment": {"evictionMemory": "1Gi"}}),
        ("evictionHard", "leave them out of configuration"),
    ),
    Row(
        "an amount of memory in words",
        node_pool(kubelet={"numaAlignment": {"reservedMemory": "2 GB"}}),
        node_pool(kubelet={"numaAlignment": {"reservedMemory": "2Gi"}}),
        ("'2 GB' is no amount of memory: write a whole number of Mi or Gi, such as 2Gi",),
    ),
    Row(
        "more for the eviction than is reserved",
        node_pool(kubelet={"numaAlignment": {"reservedMemory": "1Gi", "evictionMemory": "1024Mi"}}),
        node_pool(kubelet={"numaAlignment": {"reservedMemory": "1Gi", "evictionMemory": "1023Mi"}}),
        ("make it less than reservedMemory",),
    ),
    Row(
        "no core for the system, without which the CPU manager does not start",
        node_pool(kubelet={"numaAlignment": {"reservedCores": 0}}),
        node_pool(kubelet={"numaAlignment": {"reservedCores": 2}}),
        ("greater than or equal to 1",),
    ),
    Row(
        "a time-out of a second",
        node_pool(stageTimeoutSeconds={"root": 1}),
        node_pool(stageTimeoutSeconds={"root": 900}),
        ("greater than or equal to 10",),
    ),
    Row(
        "an unknown attestation",
        node_pool(attestation="Maybe"),
        node_pool(attestation="Optional"),
        ("Required", "Optional"),
    ),
)

ROWS = (
    *SERVERS,
    *BMCS,
    *RACKS,
    *DPUS,
    *CARDS,
    *IMAGES,
    *NODE_POOLS,
    *POOL_SETTINGS,
    *MAINTENANCES,
    *ADDRESS_BLOCKS,
    *NETWORKS,
    *INFINIBAND,
    *ATTESTATION,
)
