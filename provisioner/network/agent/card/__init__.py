"""What was declared of the card itself: what its host may do with it, and settings of its firmware.

`devices` finds BlueFields on the PCI bus, `tools` runs mstprivhost and mstconfig with an end to their time and output,
`parse` reads what they print, `decide` compares that with what was declared and names the command that is missing (both
pure), `configure` looks, tells, and looks again; `worker` does so in a thread of its own, for a tool that hangs must
not hold up what is enforced of tenants' networks.

Nothing here resets a card or cuts power: what takes effect only then is told (NeedsPowerCycle) until somebody does.
Sources: NVIDIA Firmware Tools (MFT) documentation, "mlxprivhost" and "mlxconfig"; Mellanox/mstflint, mstprivhost.py.
"""
