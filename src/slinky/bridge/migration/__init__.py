"""Taking over from the original, the Go slurm-bridge: its pods, jobs and nodes, as they are."""
