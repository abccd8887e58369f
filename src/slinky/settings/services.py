"""Sections that several services of ours have: how slurmrestd is reached, how a webhook is served, and how one of several processes leads.

Comes in: nothing. Goes out: records to be extended by each service with the names that are its own. What must stay true: an option that several services have says the same in all of them.
"""

from pathlib import Path
from typing import Annotated

from slinky.settings.sections import Help, Section, SettingsError

__all__ = ["LeaderSection", "SlurmSection", "WebhookSection"]


class SlurmSection(Section, frozen=True):
    """How slurmrestd is reached; where the token is, each service says for itself."""

    user: Annotated[str, Help("Whose token it is; empty where the token says so itself.")] = ""
    ca_file: Annotated[str, Help("Certificate authority of slurmrestd, for https.")] = ""
    certificate_file: Annotated[str, Help("Client certificate for slurmrestd, for https.")] = ""
    key_file: Annotated[str, Help("Key of the client certificate.")] = ""


class WebhookSection(Section, frozen=True):
    """An admission webhook."""

    port: Annotated[int, Help("Port of the webhook.")] = 9443
    certificate_file: Annotated[
        str, Help("Its certificate, read again when it changes; where it is empty, one is made and kept in a Secret.")
    ] = ""
    key_file: Annotated[str, Help("Key of the certificate.")] = ""
    ca_file: Annotated[
        str,
        Help(
            "Authority of that certificate, to be put into the webhook configurations, also when it changes; where it is empty, something else does that (cert-manager's injector)."
        ),
    ] = ""
    url: Annotated[
        str, Help("Address by which the API server reaches the webhook where it runs outside the cluster, instead of the Service.")
    ] = ""

    def authorities(self) -> bytes:
        """Of `ca_file`, as PEM; none where there is no such file. Raises SettingsError where it cannot be read."""
        try:
            return Path(self.ca_file).read_bytes() if self.ca_file else b""
        except OSError as error:
            raise SettingsError(f"admission.caFile {self.ca_file} cannot be read: {error.strerror}") from error


class LeaderSection(Section, frozen=True):
    """One process acts at a time; others wait."""

    elect: Annotated[bool, Help("Elect a leader; without it, be sure that one process runs.")] = True
    seconds: Annotated[
        float,
        Help(
            "How long another waits after a leader's last sign of life before it takes over; the leader itself steps down after two thirds of that."
        ),
    ] = 15.0
