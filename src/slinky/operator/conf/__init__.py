"""Slurm's own files, as text: slurm.conf, cgroup.conf, slurmdbd.conf, and those of the daemons beside it."""

from slinky.operator.conf.slurm import all_files, referenced_files, slurm_conf

__all__ = ["all_files", "referenced_files", "slurm_conf"]
