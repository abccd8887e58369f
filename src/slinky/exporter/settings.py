"""The exporter's configuration: one typed file, read once at start. All of it may be left out.

Every option's help stands where the option is defined; docs/exporter-configuration.md is made from it. What must stay true: a file that is let pass can be worked with.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from slinky.settings import Help, Section, SettingsError, SlurmSection, load, tables

__all__ = ["Limits", "Settings", "SlurmSettings", "SnapshotSettings", "load_settings", "settings_reference"]

DOCUMENTED = "docs/exporter-configuration.md"


class SlurmSettings(SlurmSection, frozen=True):
    """How slurmrestd is reached."""

    token_file: Annotated[
        str, Help("File with a token of a user who may see all jobs, read again when it changes; where it is empty, SLURM_JWT is taken.")
    ] = "/etc/slurm-exporter/token/auth-token"  # noqa: S105


class SnapshotSettings(Section, frozen=True):
    """How often Slurm is asked, and how long that may take. Nobody scrapes: nothing is asked."""

    seconds: Annotated[
        float, Help("Least time between the beginnings of two looks at Slurm, however many scrape; what was seen serves all meanwhile.")
    ] = 10.0
    share: Annotated[
        float,
        Help(
            "Largest share of the time that may go into looks: after one that took a second, with 0.2 the next begins five seconds later."
        ),
    ] = 0.2
    look_seconds: Annotated[float, Help("How long one look may take in all; then Slurm counts as down.")] = 30.0
    wait_seconds: Annotated[
        float,
        Help("How long a scrape waits for the look that it caused, or that runs; then it gets what was seen last, with its age."),
    ] = 5.0
    stale_seconds: Annotated[
        float, Help("For how long what was seen last is told while Slurm is down; after that only the exporter's own metrics are.")
    ] = 300.0


class Limits(Section, frozen=True):
    """How many values of a label are told apart; what is beyond is summed up as `other`. 0: all of it is `other`."""

    users: Annotated[int, Help("Users, those with the most CPUs asked for or in use first.")] = 100
    accounts: Annotated[int, Help("Accounts, in the same order.")] = 100
    qos: Annotated[int, Help("QoS, in the same order.")] = 50
    partitions: Annotated[
        int, Help("Partitions, in the same order; a job that waits for one of several counts under their list (`a,b`).")
    ] = 100
    nodes: Annotated[int, Help("Nodes with series of their own, by name.")] = 1000
    reasons: Annotated[int, Help("Reasons for which jobs wait.")] = 50
    namespaces: Annotated[int, Help("Kubernetes namespaces of the bridge's pods.")] = 100
    pods: Annotated[int, Help("Pods of the bridge with a series of their own that names their job; the rest is left out.")] = 1000
    others: Annotated[int, Help("Of anything else: licenses, reservations, kinds of GRES, kinds of RPC.")] = 100
    job_series: Annotated[
        int,
        Help(
            "Series of any metric that has user, account, QoS and partition at once; where there would be more, fewer users are told apart, then accounts, QoS and partitions."
        ),
    ] = 5000


class Settings(Section, frozen=True):
    """All of it."""

    slurm_rest_api: Annotated[str, Help("Address of slurmrestd.")] = "http://localhost:6820"
    health_port: Annotated[int, Help("Port of /metrics, /livez and /readyz.")] = 8080
    original_names: Annotated[
        bool, Help("Tell also what the original slurm-exporter told, under its names and in its units (docs/exporter.md).")
    ] = False
    slurm: SlurmSettings = SlurmSettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    limits: Limits = Limits()


def load_settings(path: Path) -> Settings:
    """Raises SettingsError."""
    settings = load(path, Settings, documented=DOCUMENTED)
    if wrong := next(_wrong(settings), None):
        raise SettingsError(f"{path}: {wrong}")
    return settings


def _wrong(settings: Settings) -> Iterator[str]:
    if not settings.slurm_rest_api.strip():
        yield "slurmRestApi is empty; it must say where slurmrestd is, such as http://slurm-restapi.slurm:6820"
    snapshot = settings.snapshot
    times = {
        "seconds": snapshot.seconds,
        "lookSeconds": snapshot.look_seconds,
        "waitSeconds": snapshot.wait_seconds,
        "staleSeconds": snapshot.stale_seconds,
    }
    for name, seconds in times.items():
        if seconds <= 0:
            yield f"snapshot.{name} is {seconds:g}; it must be more than 0"
    if not 0 < snapshot.share <= 1:
        yield f"snapshot.share is {snapshot.share:g}; it must be more than 0 and at most 1"
    for field in msgspec.structs.fields(settings.limits):
        if (value := getattr(settings.limits, field.name)) < 0:
            yield f"limits.{field.encode_name} is {value}; it must be 0 or more"
    if settings.limits.job_series < 100:
        yield f"limits.jobSeries is {settings.limits.job_series}; it must be 100 or more, or not even the states would have room"


EXAMPLE = """\
slurmRestApi: http://slurm-restapi.slurm:6820
slurm:
  tokenFile: /etc/slurm-exporter/token/auth-token
snapshot:
  seconds: 15
limits:
  users: 200
"""

INTRODUCTION = f"""\
# Configuration of the exporter

Made from the code: `slinky exporter settings > docs/exporter-configuration.md`.

One YAML file, given by `--config` or `SLINKY_EXPORTER_CONFIG`; without one everything is as by default. It is read once, at start. Every key may be left out. One that is not known is refused by its name.

```yaml
{EXAMPLE}```
"""


def settings_reference() -> str:
    return f"{INTRODUCTION}\n{tables(Settings)}"
