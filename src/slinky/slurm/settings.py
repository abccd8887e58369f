"""What a client takes from its environment when it is told nothing: where slurmrestd is, and whose token to use."""

import os

from slinky.slurm.credentials import Credentials, EnvironmentToken, TokenFile
from slinky.slurm.errors import ConfigurationError

__all__ = ["found_address", "found_credentials"]


def found_address() -> str:
    """SLINKY_SLURM_URL."""
    if url := os.environ.get("SLINKY_SLURM_URL", ""):
        return url
    raise ConfigurationError("where is slurmrestd? Give its address, or set SLINKY_SLURM_URL (http://host:6820, https://…, unix:///…)")


def found_credentials(user: str = "") -> Credentials:
    """A token file named by SLINKY_SLURM_TOKEN_FILE, or the token in SLURM_JWT; the user from SLINKY_SLURM_USER where it is set."""
    user = user or os.environ.get("SLINKY_SLURM_USER", "")
    if path := os.environ.get("SLINKY_SLURM_TOKEN_FILE", ""):
        return TokenFile(path, user)
    if os.environ.get("SLURM_JWT", ""):
        return EnvironmentToken("SLURM_JWT", user)
    raise ConfigurationError(
        "who is asking? Give credentials, or set SLINKY_SLURM_TOKEN_FILE or SLURM_JWT (`scontrol token` makes a token)"
    )
