"""The bridge: Slurm schedules pods. One pod's way through the code is one direction, one module a step (docs/design.md)."""
