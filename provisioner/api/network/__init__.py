"""VPCs, attachments, groups, pools and claims; what a DPU is told; InfiniBand."""
