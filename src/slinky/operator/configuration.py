"""A cluster's configuration as one thing with one name: the digest of all its files. Pure.

Comes in: a view. Goes out: a view whose slurm.conf carries that digest as a word of SlurmctldParameters, which Slurm keeps and shows and gives no meaning; and objects in which all files stand in one ConfigMap. What must stay true: whoever
sees the digest in Slurm knows that slurmctld has read exactly these files, for the kubelet brings one ConfigMap into a pod in one step, and several one by one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from slinky.operator import names
from slinky.operator.children import digest
from slinky.operator.conf.slurm import slurm_conf
from slinky.operator.objects.controller import referenced_files
from slinky.operator.objects.view import ClusterView

__all__ = ["MARK", "all_files", "bundled", "confirmed_config", "confirmed_copy", "mark_in", "marked", "too_large", "with_files"]

MARK = "slinky_configuration"
LENGTH = 16
MOST_BYTES = 1024 * 1024  # of all values of a ConfigMap: Kubernetes' own limit
_MARK = re.compile(rf"\b{MARK}=([0-9a-f]+)")


def all_files(view: ClusterView) -> dict[str, str]:
    """Name → text, of all that stands in /etc/slurm but for keys. What is given wins over what is made, but for slurm.conf."""
    made = slurm_conf(view)
    given = {file: text for name in referenced_files(view.controller) for file, text in view.files.get(name, {}).items()}
    return {**made, **given, "slurm.conf": made["slurm.conf"]}


def marked(view: ClusterView) -> tuple[ClusterView, str]:
    """With the digest in its slurm.conf; and the digest."""
    found = digest(all_files(view))[:LENGTH]
    spec = view.controller.spec
    extra = f"{spec.extra_conf.rstrip()}\nSlurmctldParameters={MARK}={found}\n".lstrip()
    controller = msgspec.structs.replace(view.controller, spec=msgspec.structs.replace(spec, extra_conf=extra))
    return replace(view, controller=controller), found


def too_large(files: Mapping[str, str]) -> str:
    """What is wrong where one ConfigMap cannot hold them all; they stay in one, which the kubelet brings into a pod in one step."""
    sizes = {name: len(text.encode()) for name, text in files.items()}
    if (total := sum(sizes.values())) <= MOST_BYTES:
        return ""
    largest = ", ".join(f"{name} {sizes[name]:,}" for name in sorted(sizes, key=lambda name: -sizes[name])[:3])
    return (
        f"the cluster's files have {total:,} bytes, and the one ConfigMap that they go into holds {MOST_BYTES:,} (the largest: {largest}):"
        " put large files and programs into the daemons' images or into volumes of their pods, and name them by their paths"
    )


def bundled(objects: Sequence[dict[str, Any]], view: ClusterView) -> list[dict[str, Any]]:
    """All files in the one ConfigMap, and no longer from others."""
    given = frozenset(referenced_files(view.controller))
    return [_bundled(found, view, given) for found in objects]


def confirmed_config(name: str) -> str:
    """The ConfigMap with the configuration that all daemons were last seen to run: what is gone back to where slurmctld refuses another."""
    return f"{names.config(name)}-confirmed"


def confirmed_copy(objects: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Of the configuration among `objects`."""
    config = next(each for each in objects if _is_config(each, name))
    return {**config, "metadata": {**config["metadata"], "name": confirmed_config(name)}}


def with_files(objects: Sequence[Mapping[str, Any]], name: str, files: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """The same, with another configuration."""
    return [{**each, "data": dict(files)} if _is_config(each, name) else each for each in objects]


def _is_config(found: Mapping[str, Any], name: str) -> bool:
    return bool(found["kind"] == "ConfigMap" and found["metadata"]["name"] == names.config(name))


def _bundled(found: dict[str, Any], view: ClusterView, given: frozenset[str]) -> dict[str, Any]:
    if _is_config(found, view.name):
        return {**found, "data": all_files(view)}
    if found["kind"] != "StatefulSet":
        return found
    template = found["spec"]["template"]
    volumes = [_without(volume, given) for volume in template["spec"].get("volumes", [])]
    pod = {**template, "spec": {**template["spec"], "volumes": volumes}}
    return {**found, "spec": {**found["spec"], "template": pod}}


def _without(volume: dict[str, Any], given: frozenset[str]) -> dict[str, Any]:
    if volume.get("name") != "slurm-etc" or "projected" not in volume:
        return volume
    sources = [source for source in volume["projected"].get("sources", []) if not _is_given(source, given)]
    return {**volume, "projected": {**volume["projected"], "sources": sources}}


def _is_given(source: Mapping[str, Any], given: frozenset[str]) -> bool:
    found = source.get("configMap") or {}
    return found.get("name") in given and not found.get("items")


def mark_in(parameters: object) -> str:
    """The digest in SlurmctldParameters as Slurm tells them; empty where there is none."""
    text = ",".join(map(str, parameters)) if isinstance(parameters, list) else str(parameters or "")
    found = _MARK.search(text)
    return found[1] if found else ""
