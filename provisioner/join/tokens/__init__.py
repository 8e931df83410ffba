"""The token with which a server joins once: made, and taken away when it is stale."""
