"""What the responder is told, and what it tells of machines."""
