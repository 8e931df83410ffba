"""DPUs and their hosts in network namespaces, joined by an underlay: a real kernel on every side."""
