"""What runs on a server and must not notice: pods, gangs of pods, and Slurm's jobs."""
