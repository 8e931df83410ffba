"""What runs inside the images. Needs nothing but Python's standard library.

The agent starts on every boot of every server, so its modules import as little as they can: no `dataclasses`,
`typing`, `http.client` or `argparse` (together they cost more start-up time than the agent itself).
"""
