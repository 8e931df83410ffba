"""The controller's side: identifiers are claimed, VPCs and attachments compiled into one DPUNetwork a DPU."""
