"""What can be asked of Slurm, one module a subject. Each call is a line or two: a path, a body, what comes back."""
