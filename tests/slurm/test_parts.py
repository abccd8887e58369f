"""The small parts that need no server: addresses, one answer, markers, the circuit, the public face, the error tree."""

import asyncio
import inspect
import logging
import re

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from hypothesis import given
from hypothesis import strategies as st

import slinky.slurm
from slinky.slurm import TLS, CircuitOpenError, ConfigurationError, JobDescription, SlurmError, UnavailableError, errors
from slinky.slurm.address import Address
from slinky.slurm.circuit import Circuit
from slinky.slurm.markers import carries, with_marker
from slinky.slurm.one_answer import OneAnswer, first_answer, take_one_answer


@pytest.mark.parametrize(
    ("url", "base", "socket"),
    [
        ("http://head:6820", "http://head:6820", ""),
        ("https://head:6820/slurm-api/", "https://head:6820/slurm-api", ""),
        ("unix:///run/slurmrestd.sock", "http://localhost", "/run/slurmrestd.sock"),
    ],
)
def test_addresses(url: str, base: str, socket: str) -> None:
    address = Address.parse(url)
    assert (address.base, address.socket) == (base, socket)
    assert (address.tls is not None) == url.startswith("https")


@pytest.mark.parametrize("url", ["", "head:6820", "ftp://head", "unix:relative", "http://", "http://[::1", "http://head:99999"])
def test_what_is_no_address_is_refused_with_what_would_be(url: str) -> None:
    with pytest.raises(ConfigurationError, match="would look like"):
        Address.parse(url)


def test_secrets_and_certificates_belong_elsewhere() -> None:
    with pytest.raises(ConfigurationError, match="user or password") as caught:
        Address.parse("http://me:hunter2@head")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="https"):
        Address.parse("http://head", TLS(ca="/ca.pem"))
    with pytest.raises(ConfigurationError, match=r"/no/such\.pem"):
        TLS(ca="/no/such.pem").context()


def test_the_first_answer_of_two() -> None:
    first = b"HTTP/1.1 404 NOT FOUND\r\nConnection: Close\r\nContent-Length: 5\r\n\r\nhello"
    assert first_answer(first + b"HTTP/1.1 504 GATEWAY TIMEOUT\r\n\r\n") == len(first)
    assert first_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") is None
    assert first_answer(b"hello, this is the body of something") is None
    assert first_answer(b"HTTP/1.1 200 OK\r\nContent-Le") is None


@pytest.mark.parametrize(
    ("text", "carried"),
    [("job-1", True), ("job-10", False), ('{"id": "job-1"}', True), ("my-job-1", False), ("x job-1 y", True), ("", False)],
)
def test_a_marker_is_a_word_of_its_own(text: str, carried: bool) -> None:
    assert carries(text, "job-1") == carried


@given(st.lists(st.sampled_from(["j-1", "j", "-", "1", " ", "_", ":", "é", "\n", "²"]), max_size=12).map("".join))
def test_a_marker_is_found_where_a_regular_expression_finds_a_whole_word(text: str) -> None:
    assert carries(text, "j-1") == (re.search(r"(?<![\w-])j-1(?![\w-])", text) is not None)


def test_a_marker_goes_into_an_empty_field_or_is_there_already() -> None:
    assert with_marker(JobDescription(), "m", "extra").extra == "m"
    text = JobDescription(admin_comment='{"uid": "m"}')
    assert with_marker(text, "m", "admin_comment") is text
    with pytest.raises(ConfigurationError, match="is taken"):
        with_marker(JobDescription(comment="mine"), "m", "comment")


async def test_the_circuit_opens_after_a_row_of_failures_and_pings_until_one_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    pings = 0

    async def ping() -> bool:
        nonlocal pings
        pings += 1
        return pings == 3

    circuit = Circuit(ping, threshold=3, first_ping=0.001, slowest_ping=0.002)
    circuit.failed("a")
    circuit.failed("b")
    circuit.succeeded()
    circuit.failed("c")
    circuit.failed("d")
    circuit.check("still closed")
    with caplog.at_level(logging.INFO):
        circuit.failed("refused")
        with pytest.raises(CircuitOpenError, match="refused") as caught:
            circuit.check("GET /x")
        assert isinstance(caught.value, UnavailableError)
        assert caught.value.outcome_known
        async with asyncio.timeout(5):
            await circuit.closed()
    circuit.check("closed again")
    assert pings == 3
    await circuit.stop()


async def test_the_names_inside_aiohttp_that_are_used_are_still_there() -> None:
    """Should a release rename what `one_answer` and `transport` reach for, it is said here and not by lost answers."""
    assert callable(ResponseHandler.data_received)
    assert hasattr(aiohttp.client, "_RequestContextManager")
    for connector in (aiohttp.TCPConnector(), aiohttp.UnixConnector(path="/nowhere")):
        usual = connector._factory()
        assert type(usual) is ResponseHandler
        ours = take_one_answer(connector)._factory()
        assert isinstance(ours, OneAnswer)
        await connector.close()
    async with aiohttp.ClientSession() as session:
        assert session._retry_connection is True


def test_the_public_face_is_what_it_says() -> None:
    assert slinky.slurm.__all__ == sorted(slinky.slurm.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    public = {name for name, value in vars(slinky.slurm).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(slinky.slurm.__all__)


def test_the_error_tree_at_the_top_of_its_module_is_the_real_one() -> None:
    written = re.findall(r"^( *)(\w+Error)\b", str(errors.__doc__), re.MULTILINE)
    parents: list[type[SlurmError]] = []
    told = set()
    for indent, name in written:
        kind = getattr(errors, name)
        depth = len(indent) // 4
        parents[depth:] = [kind]
        assert depth == 0 or kind.__base__ is parents[depth - 1]
        told.add(kind)
    real = {value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, SlurmError)}
    assert told == real
    assert all(getattr(slinky.slurm, kind.__name__) is kind for kind in real)
