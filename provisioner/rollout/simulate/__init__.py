"""A rollout before it is done: a trace of jobs, a cluster that runs them, and the planner, or another policy, on it."""
