"""Whether a boot host, or a rack's cache, does its work: what /healthz and /readyz answer with."""
