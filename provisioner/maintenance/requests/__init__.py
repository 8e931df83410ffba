"""What was asked for: request conditions, requestors, and what all of them want together."""
