"""Slurm for Prometheus: one look at slurmctld becomes samples, dashboards and alert rules.

`snapshot` is what one look sees, `samples` makes families of it (pure), `snapshots` sees to it that slurmctld is not asked more often than allowed, `exporter` is the service. What must stay true: a scrape is never blocked or failed by Slurm, and the number of series is bounded.
"""
