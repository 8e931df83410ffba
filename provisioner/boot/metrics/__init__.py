"""What a boot host and a rack's cache tell Prometheus. No label ever holds the name of a machine, or a word of one."""
