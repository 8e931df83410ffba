"""From a booted server to a Node: admit, mint a token, create the Node, approve certificates."""
