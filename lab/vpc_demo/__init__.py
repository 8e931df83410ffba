"""Two tenants with the same addresses on three DPUs, and what their packets can and cannot do."""
