"""`provisioner boot explain`, `trace` and `replay`: one machine's boot, looked at from outside."""
