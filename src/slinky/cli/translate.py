"""`slinky translate`: what the bridge would make of a manifest, printed, with no cluster.

Comes in: manifests, and the bridge's configuration where the site's own is to be used. Goes out: text for people, or JSON or YAML for programs; exit code 1 where anything is refused, 2 where something cannot be read.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from slinky.bridge.expansion_parts import Document
from slinky.bridge.policy_settings import UNLIMITED
from slinky.bridge.preview import Previews, preview
from slinky.bridge.preview_words import Preview
from slinky.bridge.settings import Settings, SettingsError
from slinky.bridge.settings_file import load_settings

__all__ = ["translate"]

UNREADABLE = 2
SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
SHOWN = 8  # names of pods


class UnreadableError(Exception):
    """Not a manifest; the message names the file."""


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A manifest, a directory of them, or - for standard input. May be given several times.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The bridge's configuration: partition, defaults, GRES, policy.  [default: none; every namespace counts as managed]",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects that name none.")
@click.option(
    "--namespace-labels",
    default="",
    metavar="KEY=VALUE,…",
    help="Labels of the namespaces, for a configuration that goes by them.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
def translate(files: tuple[str, ...], config: Path | None, namespace: str, namespace_labels: str, output: str) -> None:
    """Print what the bridge would make of a manifest: jobs, rules for nodes, the `sbatch` line, refusals.

    Asks no cluster: pods, Jobs, JobSets, LeaderWorkerSets, Deployments, StatefulSets, ReplicaSets, CronJobs and PodGroups of both APIs are expanded into the pods that their controllers would make, and those go through
    the bridge's own admission and translation. Other kinds are named and skipped.

    \b
      slinky translate -f examples/gang.yaml
      kubectl get deploy web -o yaml | slinky translate -f - --config /etc/slurm-bridge/config.yaml
      slinky translate -f jobs/ -n team --namespace-labels team=physics -o json

    Exit code: 0, 1 where anything is refused, 2 where something cannot be read.
    """
    try:
        settings = load_settings(config) if config else Settings(policy=UNLIMITED)
        documents = [_placed(document, namespace) for name in files for document in _read(name)]
        labels = _labels(namespace_labels)
    except (UnreadableError, SettingsError) as error:
        click.echo(f"slinky: {error}", err=True)
        sys.exit(UNREADABLE)
    found = preview(documents, settings, labels, managed=None if config else True)
    click.echo(_written(found, output), nl=False)
    sys.exit(1 if found.refused else 0)


# Reading


def _read(name: str) -> Iterator[Document]:
    if name == STDIN:
        yield from _documents("standard input", sys.stdin.read())
        return
    path = Path(name)
    paths = sorted(found for found in path.iterdir() if found.suffix in SUFFIXES) if path.is_dir() else [path]
    if not paths:
        raise UnreadableError(f"{name} holds no manifest ({', '.join(SUFFIXES)})")
    for each in paths:
        try:
            text = each.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableError(f"{each} cannot be read: {getattr(error, 'strerror', '') or error}") from error
        yield from _documents(str(each), text)


def _documents(name: str, text: str) -> Iterator[Document]:
    try:
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise UnreadableError(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    if not found:
        raise UnreadableError(f"{name} is empty: there is no object in it")
    for number, document in enumerate(found, start=1):
        yield from _objects(f"{name}, document {number}" if len(found) > 1 else name, document)


def _objects(name: str, document: Any) -> Iterator[Document]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise UnreadableError(f"{name} is no Kubernetes object: it has no kind")
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        kind = document["kind"].removesuffix("List")
        for number, item in enumerate(document["items"], start=1):
            inner = {"kind": kind, "apiVersion": document.get("apiVersion", ""), **item} if kind and isinstance(item, dict) else item
            yield from _objects(f"{name}, item {number}", inner)
        return
    meta = document.get("metadata")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        raise UnreadableError(f"{name}: {document['kind']} has no name (metadata.name)")
    yield document


def _placed(document: Document, namespace: str) -> Document:
    return document | {"metadata": {**document["metadata"], "namespace": document["metadata"].get("namespace") or namespace}}


def _labels(text: str) -> dict[str, str]:
    found = {}
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise UnreadableError(f"--namespace-labels {text}: {word!r} must be KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


# Writing


def _written(found: Previews, output: str) -> str:
    if output == "text":
        return _text(found)
    plain = msgspec.to_builtins(found, enc_hook=repr)
    if output == "json":
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
    return yaml.safe_dump(plain, sort_keys=False, width=160, allow_unicode=True)


def _text(found: Previews) -> str:
    blocks = ["\n".join(_block(each)) for each in found.workloads]
    blocks += ["\n".join(f"skipped: {text}" for text in found.skipped)] if found.skipped else []
    return "\n\n".join(blocks or ["there is nothing here that pods are made of"]) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _block(each: Preview) -> Iterator[str]:
    alike = f", and {each.more} more like it" if each.more else ""
    yield f"{each.workload}{f' (of {each.made_by})' if each.made_by else ''}{alike}"
    for text in each.refusals:
        yield f"  REFUSED: {text}"
    for text in each.warnings:
        yield f"  warning: {text}"
    if len(each.pods) > 1:
        names = ", ".join(each.pods[:SHOWN])
        yield f"  pods: {names}{f' … {each.pods[-1]} ({len(each.pods)})' if len(each.pods) > SHOWN else ''}"
    for number, job in enumerate(each.jobs):
        yield f"  job, component {number}:" if len(each.jobs) > 1 else "  job:"
        for name, value in msgspec.to_builtins(job, enc_hook=repr).items():
            yield f"    {name}: {_value(value)}"
    if each.nodes:
        yield "  node:"
        yield from (f"    - {rule}" for rule in each.nodes)
    if each.preferences:
        yield "  preferred by Kubernetes, not asked of Slurm:"
        yield from (f"    - {rule}" for rule in each.preferences)
    if each.sbatch:
        yield f"  {each.sbatch}"
