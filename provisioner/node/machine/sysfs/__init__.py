"""The kernel's small files, read as they may be: gone, or not readable."""
