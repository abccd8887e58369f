"""Slurm and Kubernetes on the same machines, as one system."""

__all__ = ["__version__"]

__version__ = "0.1.0"
