"""The read-only page: racks, boots, maintenances and rollouts, as the API server tells of them.

It writes nothing but reviews of who asks. What it shows was written by machines, tenants and people: all of it is text.
"""
