"""Jobs as all their sources tell of them: what runs, and how it ended."""
