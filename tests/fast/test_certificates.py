"""Certificates that strict clients (Python 3.13 on) accept, and kubeconfigs that carry all they need."""

import base64
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from slinky.sandbox.certificates import Authority, kubeconfig


def test_what_the_authority_issues_stands_up_to_verification(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    authority.issue("server", "server", hosts=("localhost", "127.0.0.1"))
    leaf = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    verifier = PolicyBuilder().store(Store([authority.certificate])).build_server_verifier(x509.DNSName("localhost"))
    assert verifier.verify(leaf, [])[-1] == authority.certificate
    for extension in (x509.AuthorityKeyIdentifier, x509.SubjectKeyIdentifier):
        assert leaf.extensions.get_extension_for_class(extension)


def test_keys_are_for_the_owner_only(tmp_path: Path) -> None:
    Authority.create(tmp_path).issue("client", "someone", "group")
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("*.key"))


def test_an_authority_can_be_read_again(tmp_path: Path) -> None:
    first = Authority.create(tmp_path)
    again = Authority.load(tmp_path)
    assert again.certificate == first.certificate
    again.issue("late", "late")


def test_a_kubeconfig_needs_no_other_file(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    authority.issue("admin", "admin")
    document = yaml.safe_load(kubeconfig(authority, "admin", "https://127.0.0.1:6443"))
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    assert base64.b64decode(cluster["certificate-authority-data"]) == (tmp_path / "ca.crt").read_bytes()
    assert base64.b64decode(user["client-key-data"]) == (tmp_path / "admin.key").read_bytes()
