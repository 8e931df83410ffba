"""What several stages must agree on, each rule once: pure functions over the API's objects."""
