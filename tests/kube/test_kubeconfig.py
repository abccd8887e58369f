"""Kubeconfigs as people have them, and what they must not give away."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from slinky.kube import Access, ConfigurationError, ExecPlugin, from_kubeconfig, in_cluster
from slinky.kube.access import Identity
from slinky.kube.kubeconfig import default_paths, load_access

SECRET = "hunter2-secret"


def written(folder: Path, name: str = "config", *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> Path:
    document = {
        "current-context": "home",
        "clusters": [{"name": "c", "cluster": {"server": "https://k:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "home", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
    }
    path = folder / name
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_token(tmp_path: Path) -> None:
    access = from_kubeconfig(written(tmp_path, user={"token": SECRET}))
    assert (access.server, access.namespace, access.identity.token) == ("https://k:6443", "shop", SECRET)


def test_a_token_file_is_relative_to_the_kubeconfig_and_wins_over_a_token(tmp_path: Path) -> None:
    access = from_kubeconfig(written(tmp_path, user={"token": SECRET, "tokenFile": "there/token"}))
    assert access.identity.token == ""
    assert access.identity.token_file == tmp_path / "there/token"


def test_basic_and_impersonation(tmp_path: Path) -> None:
    who = from_kubeconfig(written(tmp_path, user={"username": "u", "password": SECRET, "as": "bob", "as-groups": ["a", "b"]})).identity
    assert (who.username, who.password, who.impersonate, who.impersonate_groups) == ("u", SECRET, "bob", ("a", "b"))


def test_certificates_from_files_and_from_data(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("AUTHORITY")
    (tmp_path / "me.crt").write_text("ME")
    data = base64.b64encode(b"KEY").decode()
    path = written(tmp_path, user={"client-certificate": "me.crt", "client-key-data": data}, cluster={"certificate-authority": "ca.crt"})
    access = from_kubeconfig(path)
    assert (access.authority, access.identity.certificate, access.identity.key) == ("AUTHORITY", b"ME", b"KEY")


def test_the_clusters_ways(tmp_path: Path) -> None:
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    access = from_kubeconfig(written(tmp_path, cluster=cluster))
    assert (access.insecure, access.server_name, access.proxy) == (True, "kubernetes", "http://proxy:3128")


def test_an_exec_plugin(tmp_path: Path) -> None:
    section = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./login",
        "args": ["--for", 5],
        "env": [{"name": "A", "value": SECRET}],
        "provideClusterInfo": True,
        "installHint": "get it",
    }
    plugin = from_kubeconfig(written(tmp_path, user={"exec": section})).identity.plugin
    assert plugin == ExecPlugin(
        command=str(tmp_path / "./login"),
        arguments=("--for", "5"),
        environment={"A": SECRET},
        api_version="client.authentication.k8s.io/v1beta1",
        install_hint="get it",
        cluster_info=True,
    )


def test_of_several_files_the_first_to_name_something_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    one = written(first, user={"token": "one"})
    two = written(second, user={"token": "two"})
    document = yaml.safe_load(two.read_text())
    document["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "only-second"}})
    document["users"].append({"name": "only-second", "user": {"tokenFile": "t"}})
    two.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing{os.pathsep}{one}{os.pathsep}{two}")
    assert from_kubeconfig().identity.token == "one"
    assert from_kubeconfig(context="other").identity.token_file == second / "t"
    assert load_access().identity.token == "one"


def test_the_default_is_in_the_home() -> None:
    assert default_paths({"HOME": "/home/alice"}) == [Path("/home/alice/.kube/config")]


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"auth-provider": {"name": "gcp"}}, {}, "gcp"),
        ({"client-key-data": "%%%"}, {}, "client-key-data is not base64"),
        ({"client-certificate": "missing.crt"}, {}, "missing.crt"),
        ({}, {"server": "k:6443"}, "https://HOST:PORT"),
        ({}, {"proxy-url": "socks5://p:1"}, "socks5"),
        ({"as-uid": "7"}, {}, "as-uid"),
        ({"exec": {"command": "login", "interactiveMode": "Always"}}, {}, "login wants to talk to a person"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        from_kubeconfig(written(tmp_path, user=user, cluster=cluster))


def test_an_unknown_context_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'away'.*home"):
        from_kubeconfig(written(tmp_path), context="away")


def test_a_broken_file_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(f"users:\n- token: [{SECRET}\n  ]]: x")
    with pytest.raises(ConfigurationError) as caught:
        from_kubeconfig(path)
    assert SECRET not in str(caught.value)


def test_secrets_are_in_no_repr() -> None:
    plugin = ExecPlugin("login", environment={"P": SECRET})
    identity = Identity(token=SECRET, password=SECRET, certificate=SECRET.encode(), key=SECRET.encode(), plugin=plugin)
    assert SECRET not in repr(Access("https://k", identity, authority="PEM"))


def test_in_a_pod(tmp_path: Path) -> None:
    for name, text in {"token": "t", "ca.crt": "CA", "namespace": "slinky\n"}.items():
        (tmp_path / name).write_text(text)
    access = in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (access.server, access.namespace, access.authority) == ("https://[fd00::1]:6443", "slinky", "CA")
    assert access.identity.token_file == tmp_path / "token"


def test_not_in_a_pod(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not in a pod"):
        in_cluster(tmp_path, {})
