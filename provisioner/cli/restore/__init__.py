"""After etcd was put back to a snapshot: what the past that came back with it would do."""
