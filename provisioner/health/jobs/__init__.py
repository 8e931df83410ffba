"""The checks that run on the node: a Job for each, and what came of it."""
