"""Keys and certificates of a sandbox's Kubernetes: one CA, what it signs, and kubeconfig files. Everything is made anew for each sandbox."""

import base64
import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "kubeconfig", "write_signing_key"]

VALID = dt.timedelta(days=365)


@dataclass(frozen=True)
class Authority:
    """A CA whose key and certificates live in `folder`."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slinky-sandbox")])
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(True, False, True, False, False, True, True, False, False), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        authority = cls(folder, key, certificate)
        authority._write("ca", key, certificate)
        return authority

    @classmethod
    def load(cls, folder: Path) -> "Authority":
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(folder, key, x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()))

    def issue(self, file: str, common_name: str, organization: str = "", hosts: tuple[str, ...] = ()) -> None:
        """`file`.crt and `file`.key, good as a client's and, where hosts are given, as a server's."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        builder = _builder(x509.Name(attributes), self.certificate.subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        self._write(file, key, builder.sign(self.key, hashes.SHA256()))

    def issue_to(self, folder: Path, common_name: str, hosts: tuple[str, ...]) -> None:
        """As controllers look for it: `tls.crt`, `tls.key`, and `ca.crt`, in a folder of their own."""
        folder.mkdir(exist_ok=True)
        self.issue(common_name, common_name, hosts=hosts)
        for file, ending in (("tls.crt", "crt"), ("tls.key", "key")):
            (self.folder / f"{common_name}.{ending}").rename(folder / file)
        (folder / "ca.crt").write_bytes((self.folder / "ca.crt").read_bytes())

    def _write(self, file: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        (self.folder / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(self.folder / f"{file}.key", key)


def write_signing_key(folder: Path) -> None:
    """`sa.key` and `sa.pub`, with which ServiceAccount tokens are signed."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(folder / "sa.key", key)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "sa.pub").write_bytes(public)


def kubeconfig(authority: Authority, file: str, server: str) -> str:
    """A kubeconfig with the certificates inside, so that it can be copied anywhere."""
    cluster = {"server": server, "certificate-authority-data": _base64(authority.folder / "ca.crt")}
    user = {
        "client-certificate-data": _base64(authority.folder / f"{file}.crt"),
        "client-key-data": _base64(authority.folder / f"{file}.key"),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": file, "user": user}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": file}}],
        "current-context": "sandbox",
    }
    return yaml.safe_dump(document, sort_keys=False)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + VALID)


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.touch(mode=0o600)
    path.write_bytes(data)
