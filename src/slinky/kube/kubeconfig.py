"""A kubeconfig as kubectl reads it: one file or several (KUBECONFIG), one context of it, all its ways to authenticate.

In: paths and a context's name. Out: an `Access`. Of several files, the first one that says something wins, and paths in a file are relative to that file.
What must stay true: what we cannot do (an auth-provider, a SOCKS proxy) is refused by name and never ignored.
"""

import base64
import binascii
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slinky.kube.access import Access, ExecPlugin, Identity, in_cluster
from slinky.kube.errors import ConfigurationError

__all__ = ["from_kubeconfig", "load_access"]

KINDS = {"clusters": "cluster", "users": "user", "contexts": "context"}


def load_access(context: str = "") -> Access:
    """What a program should use: KUBECONFIG where set, else the pod's ServiceAccount, else `~/.kube/config`."""
    if not os.environ.get("KUBECONFIG") and os.environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster()
    return from_kubeconfig(context=context)


def from_kubeconfig(path: Path | str | None = None, *, context: str = "") -> Access:
    """`path` may be one file; without it KUBECONFIG's list, or `~/.kube/config`."""
    paths = [Path(path)] if path else default_paths(os.environ)
    found = [file for file in paths if file.exists()]
    if not found:
        raise ConfigurationError(f"no kubeconfig: {', '.join(map(str, paths))} does not exist")
    merged = _Merged(found)
    name = context or merged.current_context
    if not name:
        raise ConfigurationError(f"{merged.where}: no current-context; name one of {', '.join(merged.names('contexts')) or 'none'}")
    chosen, _ = merged.entry("contexts", name)
    cluster, cluster_folder = merged.entry("clusters", str(chosen.get("cluster", "")))
    user, user_folder = merged.entry("users", str(chosen["user"])) if chosen.get("user") else ({}, Path())
    return Access(
        server=_server(cluster, merged.where),
        identity=identity(user, user_folder),
        authority=_material(cluster, "certificate-authority", cluster_folder).decode(),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=str(cluster.get("tls-server-name", "")),
        proxy=_proxy(cluster),
        namespace=str(chosen.get("namespace") or "default"),
    )


def default_paths(environment: Mapping[str, str]) -> list[Path]:
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path(environment.get("HOME", "~")).expanduser() / ".kube/config"]


class _Merged:
    """Several files as one; the first to name something wins."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.where = os.pathsep.join(map(str, files))
        self.current_context = ""
        self._entries: dict[str, dict[str, tuple[dict[str, Any], Path]]] = {kind: {} for kind in KINDS}
        for file in files:
            self._add(file, _parsed(file))

    def _add(self, file: Path, document: dict[str, Any]) -> None:
        self.current_context = self.current_context or str(document.get("current-context") or "")
        for kind, inner in KINDS.items():
            for entry in document.get(kind) or []:
                self._entries[kind].setdefault(str(entry["name"]), (entry.get(inner) or {}, file.absolute().parent))

    def names(self, kind: str) -> Iterator[str]:
        return iter(self._entries[kind])

    def entry(self, kind: str, name: str) -> tuple[dict[str, Any], Path]:
        try:
            return self._entries[kind][name]
        except KeyError:
            known = ", ".join(self.names(kind)) or "none"
            raise ConfigurationError(f"{self.where}: no {KINDS[kind]} {name!r} (there is: {known})") from None


def _parsed(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)  # the error's own text would quote the file, secrets and all
        raise ConfigurationError(f"{file} is not YAML{f', line {where.line + 1}' if where else ''}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{file} is no kubeconfig: expected a mapping")
    return document


def identity(user: Mapping[str, Any], folder: Path) -> Identity:
    """The `user` section of a kubeconfig."""
    if provider := user.get("auth-provider"):
        raise ConfigurationError(f"auth-provider {provider.get('name')!r} was removed from Kubernetes 1.26; use its exec plugin")
    extra = [name for name in ("as-uid", "as-user-extra") if user.get(name)]
    if extra:
        raise ConfigurationError(f"kubeconfig: {', '.join(extra)} is not supported")
    token_file = user.get("tokenFile")
    return Identity(
        token="" if token_file else str(user.get("token") or ""),
        token_file=folder / token_file if token_file else None,
        username=str(user.get("username") or ""),
        password=str(user.get("password") or ""),
        plugin=_plugin(user["exec"], folder) if user.get("exec") else None,
        certificate=_material(user, "client-certificate", folder),
        key=_material(user, "client-key", folder),
        impersonate=str(user.get("as") or ""),
        impersonate_groups=tuple(user.get("as-groups") or ()),
    )


def _plugin(section: Mapping[str, Any], folder: Path) -> ExecPlugin:
    command = str(section.get("command") or "")
    if section.get("interactiveMode") == "Always":
        raise ConfigurationError(f"exec plugin {command} wants to talk to a person (interactiveMode: Always), and here is none")
    if "/" in command:  # a path is relative to the kubeconfig, a bare name is looked for in PATH
        command = str(folder / command)
    return ExecPlugin(
        command=command,
        arguments=tuple(map(str, section.get("args") or ())),
        environment={str(pair["name"]): str(pair["value"]) for pair in section.get("env") or ()},
        api_version=str(section.get("apiVersion") or "client.authentication.k8s.io/v1"),
        install_hint=str(section.get("installHint") or ""),
        cluster_info=bool(section.get("provideClusterInfo")),
    )


def _material(section: Mapping[str, Any], name: str, folder: Path) -> bytes:
    """`name-data` as base64, or else the file that `name` names."""
    if data := section.get(f"{name}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise ConfigurationError(f"kubeconfig: {name}-data is not base64") from None
    if not section.get(name):
        return b""
    file = folder / str(section[name])
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"kubeconfig: {name} {file}: {error.strerror}") from None


def _server(cluster: Mapping[str, Any], where: str) -> str:
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"{where}: the cluster's server is {server!r}; expected https://HOST:PORT")
    return server


def _proxy(cluster: Mapping[str, Any]) -> str | None:
    proxy = str(cluster.get("proxy-url") or "")
    if proxy and not proxy.startswith(("http://", "https://")):
        raise ConfigurationError(f"kubeconfig: proxy-url with scheme {proxy.partition(':')[0]!r} is not supported; use http or https")
    return proxy or None
