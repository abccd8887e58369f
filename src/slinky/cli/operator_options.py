"""What the commands of `slinky operator …` share: where the configuration and Kubernetes are."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from slinky.cli.service import (
    access_by,
    kubeconfig_option,
    pods_namespace,
    with_health_port,
    with_metrics_port,
)
from slinky.kube import Access
from slinky.operator.settings import Settings, load_settings

__all__ = ["Site", "service_options", "site_options"]

Command = Callable[..., Any]


class Site(msgspec.Struct, frozen=True):
    """What `site_options` gives a command as `site`; nothing is read before it is asked for."""

    config: Path | None
    kubeconfig: Path | None
    health_port: int | None = None
    metrics_port: int | None = None

    def settings(self) -> Settings:
        """With `namespace` filled in. Raises SettingsError."""
        found = load_settings(self.config) if self.config else Settings()
        if self.health_port is not None:
            found = msgspec.structs.replace(found, health_port=self.health_port)
        if self.metrics_port is not None:
            found = msgspec.structs.replace(found, metrics_port=self.metrics_port)
        return found if found.namespace else msgspec.structs.replace(found, namespace=pods_namespace())

    def access(self) -> Access:
        """Raises ConfigurationError."""
        return access_by(self.kubeconfig)


def site_options(command: Command) -> Command:
    """--config and --kubeconfig, as the argument `site`."""

    @click.option(
        "--config",
        type=click.Path(path_type=Path),
        envvar="SLINKY_OPERATOR_CONFIG",
        show_envvar=True,
        help="The operator's configuration (docs/operator-configuration.md); without, everything is as by default.",
    )
    @kubeconfig_option
    @functools.wraps(command)
    def with_site(*arguments: Any, config: Path | None, kubeconfig: Path | None, **options: Any) -> Any:
        return command(*arguments, site=Site(config, kubeconfig), **options)

    return with_site


def service_options(command: Command) -> Command:
    """Add --health-port and --metrics-port, as parts of `site`, for a process that serves."""
    return site_options(with_health_port(with_metrics_port(command)))
