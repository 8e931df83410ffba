"""Slurm's jobs and nodes, by slurmrestd."""
