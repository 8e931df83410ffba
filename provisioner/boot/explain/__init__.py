"""What one machine would be told, and by which rule: the decisions of this package, asked instead of waited for. Pure.

Nothing here decides. `lease` asks the DHCP responder, `script` what the renderer asks, `files` names what a boot would
fetch; each carries on the reason that the decision gave.
"""
