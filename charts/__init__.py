"""The Helm chart, and what writes the parts of it that are made from elsewhere."""
