"""What a Maintenance is decided from, and its next steps, as data: facts, budget, and what is written where."""
