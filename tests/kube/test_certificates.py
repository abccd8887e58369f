"""Certificates through the years, and files that change under a server's feet."""

import asyncio
import base64
import datetime as dt
import logging
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from slinky.kube import ConfigurationError
from slinky.kube.admission import CertificateFiles
from slinky.kube.admission.cabundle import ClientConfig, Webhook, WebhookConfiguration, bundle_patch, bundle_with
from slinky.kube.admission.certificates import Issued, issue, must_renew

NAMES = ["webhook.slinky.svc", "127.0.0.1"]
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
YEAR = dt.timedelta(days=365)


def test_a_year_and_renewed_a_month_before_its_end_by_the_same_authority() -> None:
    first = issue(NAMES, START)
    assert not must_renew(first, NAMES, START + YEAR - dt.timedelta(days=31))
    late = START + YEAR - dt.timedelta(days=29)
    assert must_renew(first, NAMES, late)
    second = issue(NAMES, late, first)
    assert second.authorities == first.authorities
    assert second.certificate != first.certificate
    assert not must_renew(second, NAMES, late)


def test_at_every_moment_of_30_years_the_certificate_is_trusted_by_this_and_the_previous_bundle() -> None:
    issued, authorities = issue(NAMES, START), 1
    for days in range(0, 365 * 30, 10):
        now = START + dt.timedelta(days=days)
        if must_renew(issued, NAMES, now):
            before, issued = issued, issue(NAMES, now, issued)
            old, bundle = x509.load_pem_x509_certificates(before.authorities)[0], x509.load_pem_x509_certificates(issued.authorities)
            authorities += old != bundle[0]
            assert old in bundle, "what the old one signed is trusted on"
        bundle = x509.load_pem_x509_certificates(issued.authorities)
        certificate = x509.load_pem_x509_certificate(issued.certificate)
        certificate.verify_directly_issued_by(bundle[0])
        assert certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
        assert now < bundle[0].not_valid_after_utc
        assert len(bundle) <= 3
    assert authorities == 4


def test_other_names_need_another_certificate() -> None:
    issued = issue(NAMES, START)
    assert not must_renew(issued, NAMES[:1], START)
    assert must_renew(issued, [*NAMES, "another.svc"], START)


def test_rubbish_is_replaced() -> None:
    good = issue(NAMES, START)
    assert must_renew(Issued(b"x", b"x", b"x", b"x"), NAMES, START)
    assert must_renew(Issued(good.authorities, good.authority_key, good.certificate, issue(NAMES, START).key), NAMES, START)
    assert not must_renew(issue(NAMES, START, Issued(b"x", b"x", b"x", b"x")), NAMES, START)


@pytest.mark.parametrize("key", [b"x", issue(NAMES, START).authority_key], ids=["no key", "another's key"])
def test_an_authority_whose_key_is_lost_is_replaced_and_trusted_on(key: bytes) -> None:
    first = issue(NAMES, START)
    late = START + YEAR
    second = issue(NAMES, late, Issued(first.authorities, key, first.certificate, first.key))
    assert not must_renew(second, NAMES, late)
    assert second.authorities != first.authorities
    assert second.authorities.endswith(first.authorities)


def test_keys_are_in_no_repr() -> None:
    assert "PRIVATE" not in repr(issue(NAMES, START))


def based(*issued: Issued) -> str:
    return base64.b64encode(b"".join(each.authorities for each in issued)).decode()


def test_a_bundle_goes_only_where_it_is_missing_and_others_that_are_valid_stay() -> None:
    ours, theirs = issue(NAMES, START), issue(NAMES, START)
    both = [based(ours, theirs), based(theirs, ours)]
    webhooks = tuple(
        Webhook(name=f"w{index}", client_config=ClientConfig(ca_bundle=bundle))
        for index, bundle in enumerate([based(ours), based(theirs), *both, ""])
    )
    assert bundle_patch(WebhookConfiguration(webhooks=webhooks), ours.authorities, START) == [
        {"op": "test", "path": "/webhooks/1/name", "value": "w1"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": both[0]},
        {"op": "test", "path": "/webhooks/4/name", "value": "w4"},
        {"op": "add", "path": "/webhooks/4/clientConfig/caBundle", "value": based(ours)},
    ]


def test_replicas_with_different_authorities_agree_on_a_bundle() -> None:
    """Each adds its own; a third look changes nothing."""
    a, b = issue(NAMES, START), issue(NAMES, START)
    bundle = bundle_with(b.authorities, bundle_with(a.authorities, "", START), START)
    assert bundle_with(a.authorities, bundle, START) == bundle == bundle_with(b.authorities, bundle, START)


def test_a_bundle_does_not_grow_for_ever() -> None:
    bundle, late = "", START + 11 * YEAR
    for _ in range(20):
        bundle = bundle_with(issue(NAMES, START).authorities, bundle, START)
    assert base64.b64decode(bundle).count(b"BEGIN") == 8
    last = issue(NAMES, late)
    assert bundle_with(last.authorities, bundle, late) == based(last), "those before are over"


@pytest.mark.parametrize("found", ["!", base64.b64encode(b"rubbish").decode()])
def test_what_is_no_bundle_is_replaced(found: str) -> None:
    ours = issue(NAMES, START)
    assert bundle_with(ours.authorities, found, START) == based(ours)


async def shown(port: int) -> bytes:
    """The certificate a server shows to a new connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return found


def der(issued: Issued) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return x509.load_pem_x509_certificate(issued.certificate).public_bytes(Encoding.DER)


async def test_files_are_taken_up_when_they_change_and_connections_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = dt.datetime.now(dt.UTC)
    first, second = issue(NAMES, now), issue(NAMES, now)
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async def until(probe: bytes) -> None:
        async with asyncio.timeout(10):
            while await shown(port) != probe:
                await asyncio.sleep(0.01)

    certificate.write_bytes(first.certificate)
    key.write_bytes(first.key)
    source = CertificateFiles(certificate, key, every=0.02)
    async with source.running() as context:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        assert await shown(port) == der(first)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context(cadata=first.authorities.decode()))
        with caplog.at_level(logging.WARNING):
            certificate.write_bytes(second.certificate)  # the key does not fit yet
            async with asyncio.timeout(10):
                while "the one before stays" not in caplog.text:
                    await asyncio.sleep(0.01)
        assert await shown(port) == der(first)
        key.write_bytes(second.key)
        await until(der(second))
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
    assert source.loads == 2


async def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"tls\.crt: No such file"):
        async with CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key").running():
            pass
