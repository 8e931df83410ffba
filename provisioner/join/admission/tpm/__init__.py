"""Evidence of type TPM2: read from JSON, judged by `provisioner.attestation` with what the cluster knows."""
