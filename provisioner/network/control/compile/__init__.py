"""VPCs, attachments and security groups become what each DPU enforces: pure functions."""
