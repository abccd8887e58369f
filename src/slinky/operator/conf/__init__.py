"""Slurm's own files, as text: slurm.conf, cgroup.conf, slurmdbd.conf, and those of the daemons beside it."""

from slinky.operator.conf.slurm import slurm_conf

__all__ = ["slurm_conf"]
