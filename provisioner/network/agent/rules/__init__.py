"""The nftables rules of a DPU, as JSON of libnftables: built, brought into one form, and read back."""
