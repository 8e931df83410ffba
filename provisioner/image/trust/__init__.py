"""Which Images the cluster believes: by whom they are signed, and which were revoked."""
