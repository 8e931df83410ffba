"""What a subnet manager is to have and has, compared, and the conditions that tell of it."""
