"""Slurm clusters on Kubernetes: the objects of `slinky.slurm.net`, and what keeps a cluster as they say."""
