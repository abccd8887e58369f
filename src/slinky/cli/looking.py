"""What the commands that only look share: where the bridge's configuration, Slurm and Kubernetes are, and how the answer is written.

A file that is not there is no obstacle: who has no configuration of the bridge's says where slurmrestd is (SLINKY_SLURM_URL, SLINKY_SLURM_TOKEN_FILE), and the rest is the defaults.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from slinky.bridge.settings import Settings, SettingsError
from slinky.bridge.settings_file import load_settings
from slinky.cli.bridge_options import DEFAULT_CONFIG
from slinky.cli.service import access_by, kubeconfig_option, pods_namespace
from slinky.kube import Access, KubeError

__all__ = ["Looking", "looking_options"]

Command = Callable[..., Any]


class Looking(msgspec.Struct, frozen=True):
    """What `looking_options` gives a command as `site`."""

    config: Path
    kubeconfig: Path | None
    is_named: bool = False  # somebody said which file

    def settings(self) -> Settings:
        """Raises SettingsError where a file was named, or is there, and cannot be used."""
        found = Settings()
        if self.is_named or self.config.exists():
            found = load_settings(self.config)
        else:
            url, token = os.environ.get("SLINKY_SLURM_URL", ""), os.environ.get("SLINKY_SLURM_TOKEN_FILE", "")
            if url:
                found = msgspec.structs.replace(found, slurm_rest_api=url)
            if token:
                found = msgspec.structs.replace(found, slurm=msgspec.structs.replace(found.slurm, token_file=token))
        return found if found.namespace else msgspec.structs.replace(found, namespace=pods_namespace())

    def settings_or_error(self) -> tuple[Settings, str]:
        """The defaults and what is wrong, where they cannot be read."""
        try:
            return self.settings(), ""
        except SettingsError as error:
            return msgspec.structs.replace(Settings(), namespace=pods_namespace()), str(error)

    def access(self) -> Access | Exception:
        """Or what is wrong with it: that is a finding too."""
        try:
            return access_by(self.kubeconfig)
        except (KubeError, OSError) as error:
            return error


def looking_options(command: Command) -> Command:
    """--config, --kubeconfig and --output; the first two as the argument `site`."""

    @click.option(
        "--config",
        type=click.Path(path_type=Path),
        envvar="SLINKY_BRIDGE_CONFIG",
        show_envvar=True,
        help=f"The bridge's configuration.  [default: {DEFAULT_CONFIG} where it exists]",
    )
    @kubeconfig_option
    @click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
    @functools.wraps(command)
    def with_site(*arguments: Any, config: Path | None, kubeconfig: Path | None, **options: Any) -> Any:
        return command(*arguments, site=Looking(config or Path(DEFAULT_CONFIG), kubeconfig, config is not None), **options)

    return with_site
