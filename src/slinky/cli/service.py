"""What commands that run as a service share: how they reach Kubernetes, how they log, and how they end when they are told to."""

import asyncio
import datetime as dt
import functools
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from slinky.kube import Access, ConfigurationError, from_kubeconfig, in_cluster, load_access

__all__ = [
    "access_by",
    "kubeconfig_option",
    "logging_options",
    "pods_namespace",
    "run_until_told_to_end",
    "set_up_logging",
    "with_health_port",
    "with_metrics_port",
]

YOUNG_OBJECTS = 10_000  # new objects between two collections of the youngest; Python's default is 700
HOME = "slinky"  # the namespace where nothing says otherwise

Command = Callable[..., Any]

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="How Kubernetes is reached.  [default: $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config]",
)
health_port_option = click.option(
    "--health-port", type=int, help="Port of /livez, /readyz and /metrics, instead of the configuration's; 0 takes a free one."
)


def with_metrics_port(command: Command) -> Command:
    """--metrics-port, as part of the argument `site`."""

    @click.option(
        "--metrics-port",
        type=int,
        help="Port of /metrics, instead of the configuration's; 0 serves no metrics.",
    )
    @functools.wraps(command)
    def with_port(*arguments: Any, site: Any, metrics_port: int | None, **options: Any) -> Any:
        given = msgspec.structs.replace(site, metrics_port=metrics_port)
        return command(*arguments, site=given, **options)

    return with_port


def with_health_port(command: Command) -> Command:
    """--health-port, as part of the argument `site`."""

    @health_port_option
    @functools.wraps(command)
    def with_port(*arguments: Any, site: Any, health_port: int | None, **options: Any) -> Any:
        return command(*arguments, site=msgspec.structs.replace(site, health_port=health_port), **options)

    return with_port


def access_by(kubeconfig: Path | None) -> Access:
    """Raises ConfigurationError."""
    return from_kubeconfig(kubeconfig) if kubeconfig else load_access()


def pods_namespace() -> str:
    """Of the pod we are, else `slinky`."""
    try:
        return in_cluster().namespace
    except ConfigurationError:
        return HOME


def logging_options(command: Command) -> Command:
    """--log-format and --verbose, in effect when the command begins."""

    @click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="One line a message, or one JSON object.",
    )
    @click.option("--verbose", "-v", is_flag=True, help="Say more.")
    @functools.wraps(command)
    def with_logging(*arguments: Any, log_format: str, verbose: bool, **options: Any) -> Any:
        set_up_logging(log_format, verbose=verbose)
        return command(*arguments, **options)

    return with_logging


def set_up_logging(log_format: str, *, verbose: bool) -> None:
    """To standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if log_format == "json" else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("slinky").setLevel(logging.DEBUG if verbose else logging.INFO)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def run_until_told_to_end(service: Coroutine[Any, Any, None]) -> None:
    """Run `service`; SIGTERM and SIGINT cancel it once, and it may finish what it has begun. What it raises by itself is raised."""

    async def run() -> None:
        task = asyncio.ensure_future(service)
        told = False

        def end(number: int) -> None:
            nonlocal told
            if not told:
                logging.getLogger(__name__).info("%s: ending", signal.Signals(number).name)
                told = True
                task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end, number)
        with suppress(asyncio.CancelledError):
            await task

    _shorten_collections()
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(run())


def _shorten_collections() -> None:
    """Keep garbage collection short: what was imported is never looked at again, and young objects are looked at less often.

    A full collection stops the event loop, and modules are most of what it would walk. Nearly all objects of a
    service have no cycles and go when their last reference does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed (`pip install slinky[fast]`), else Python's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
