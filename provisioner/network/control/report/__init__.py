"""What is said of VPCs, attachments, security groups and the pool: in their status, for people."""
