"""The job model that pods and Slurm share: what runs, how it ended, and what can be done to it."""
