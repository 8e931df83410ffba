"""Which servers of a pool move to another image next: the planner, and a simulator that asks the same planner."""
