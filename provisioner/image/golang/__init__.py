"""Programs that are built from Go modules: pinned by checksum, built once, kept by content."""
