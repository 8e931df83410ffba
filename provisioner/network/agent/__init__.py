"""The DPU's agent: what its DPUNetwork wants, what the kernel has, and the difference between them.

A spec is read (`preflight`, `model.ports`) into what can be enforced and problems; that becomes the wanted state
(`desired`, with the rules in `rules`); a dump of the kernel is the observed state (`observe`), in the same dataclasses
(`model.state`). The difference is a list of operations (`diff`, `operations`), which `kernel` carries out by netlink
and nft. `enforce` goes round until a dump agrees. All but `observe`, `probe`, `kernel`, `nft`, `namespaces` and
netlink's socket is pure.

What was declared of the card itself, its host's access and its firmware's settings, is brought to it by `card`, apart
from all this.

A VPC on a DPU is a *domain*: a VRF, or, where the kernel has none, a network namespace. *HOME* is the namespace in
which the agent runs, where the underlay is, and where a port is that is isolated.
"""
