"""Certificates of our own making: an authority, and a serving certificate signed by it; and when they must be made anew.

Pure but for the dice of key making. In: names, the time, what there is. Out: an `Issued`.
What must stay true: a serving certificate lasts a year and is renewed a month before its end; an authority is renewed while everything it signed is still valid, and
the old one stays in the bundle until its end, so that at no moment a valid certificate is not trusted.
"""

import datetime as dt
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Issued", "as_pem", "issue", "must_renew", "still_valid"]

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
EARLY_DAYS = 30
SKEW = dt.timedelta(minutes=5)  # for servers whose clock is behind


@dataclass(frozen=True)
class Issued:
    """All PEM. `authorities`: the bundle to trust, the one that signs first."""

    authorities: bytes
    authority_key: bytes = field(repr=False)
    certificate: bytes
    key: bytes = field(repr=False)


def issue(names: Sequence[str], now: dt.datetime, previous: Issued | None = None) -> Issued:
    """A new certificate for `names` (DNS names or addresses), by the previous authority while that lasts."""
    kept = still_valid(previous.authorities, now) if previous else []
    signer_key = _key_of(kept[0], previous.authority_key) if previous and kept else None
    if signer_key and kept[0].not_valid_after_utc - now > dt.timedelta(days=CERTIFICATE_DAYS + EARLY_DAYS):
        authority, signer = kept[0], kept
    else:
        signer_key = ec.generate_private_key(ec.SECP256R1())
        authority = _authority(signer_key, now)
        signer = [authority, *kept]
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(names, key, authority, signer_key, now)
    return Issued(as_pem(signer), _key_pem(signer_key), _pem(certificate), _key_pem(key))


def must_renew(issued: Issued, names: Sequence[str], now: dt.datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(issued.certificate)
        authority = x509.load_pem_x509_certificates(issued.authorities)[0]
        certificate.verify_directly_issued_by(authority)
        key = load_pem_private_key(issued.key, None)
    except Exception:  # whatever somebody put there: it is of no use
        return True
    if certificate.public_key() != key.public_key():
        return True
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    held = {str(name.value) for name in found}
    early = dt.timedelta(days=EARLY_DAYS)
    return not set(names) <= held or certificate.not_valid_after_utc - now <= early or authority.not_valid_after_utc - now <= early


def still_valid(authorities: bytes, now: dt.datetime) -> list[x509.Certificate]:
    """Those of a bundle (PEM) whose time is not over; none where it cannot be read."""
    try:
        found = x509.load_pem_x509_certificates(authorities)
    except ValueError:
        return []
    return [certificate for certificate in found if certificate.not_valid_after_utc > now]


def as_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(map(_pem, certificates))


def _authority(key: ec.EllipticCurvePrivateKey, now: dt.datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"slinky webhook authority {now:%Y-%m-%d}")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _begun(name, name, key.public_key(), now, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).add_extension(usage, critical=True)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False).sign(key, hashes.SHA256())


def _certificate(
    names: Sequence[str], key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, signer: ec.EllipticCurvePrivateKey, now: dt.datetime
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = _begun(subject, authority.subject, key.public_key(), now, CERTIFICATE_DAYS)
    for extension, critical in (
        (x509.SubjectAlternativeName([_general_name(name) for name in names]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signer, hashes.SHA256())


def _begun(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _key_of(authority: x509.Certificate, pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    """The authority's key, if that is what it is."""
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == authority.public_key() else None
