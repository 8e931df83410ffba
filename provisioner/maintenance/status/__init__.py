"""What is written down of a Maintenance, on itself, on its Node, and in metrics."""
