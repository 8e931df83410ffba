"""What all kinds are made of: metadata, schema, codec, rules, errors."""
