"""What is tried again and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.kube import Backoff, OutcomeUnknownError, Retries
from slinky.kube.errors import ConnectionFailedError, DeadlineError, RequestError, refusal
from slinky.kube.proxies import proxy_for
from slinky.kube.retries import pause_before_retry

STATUS = b'{"kind":"Status","code":%d,"reason":"%s","message":"m"}'


def answered(method: str, code: int, reason: str = "", retry_after: float | None = None) -> RequestError:
    return refusal(method, "/api", code, STATUS % (code, reason.encode()), retry_after)


SAFE = [
    answered("GET", 503),
    answered("GET", 504, "Timeout"),
    answered("GET", 500, "InternalError"),
    answered("POST", 429, "TooManyRequests", 1),
    answered("GET", 429, "TooManyRequests", 1),
    ConnectionFailedError("POST", "/api", "refused"),
]
UNSAFE = [
    answered("POST", 503, "ServiceUnavailable", 1),
    answered("POST", 500, "InternalError"),
    answered("POST", 504, "Timeout"),
    answered("POST", 429, "TooManyRequests"),
    answered("GET", 404, "NotFound"),
    answered("PUT", 409, "Conflict"),
    answered("GET", 410, "Expired"),
    OutcomeUnknownError("POST", "/api", "late"),
    DeadlineError("GET", "/api", "late"),
    ConnectionFailedError("GET", "/api", "certificate", hopeless=True),
]


@pytest.mark.parametrize("error", SAFE, ids=str)
def test_tried_again(error: RequestError) -> None:
    assert pause_before_retry(error, 1, Retries()) is not None


@pytest.mark.parametrize("error", UNSAFE, ids=str)
def test_never_tried_again(error: RequestError) -> None:
    assert pause_before_retry(error, 1, Retries()) is None


def test_there_is_a_limit() -> None:
    assert pause_before_retry(SAFE[0], 3, Retries(most=3)) is not None
    assert pause_before_retry(SAFE[0], 4, Retries(most=3)) is None


def test_the_servers_wish_is_heeded() -> None:
    pause = pause_before_retry(answered("POST", 429, "TooManyRequests", 7), 1, Retries())
    assert pause is not None
    assert pause >= 7


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0.01, 5), st.floats(5, 100))
def test_a_backoff_stays_within_its_bounds(failures: int, dice: float, first: float, most: float) -> None:
    backoff = Backoff(first=first, most=most)
    seconds = backoff.seconds(failures, lambda: dice)
    assert first / 2 <= seconds <= most
    assert backoff.seconds(failures + 1, lambda: dice) >= seconds


@pytest.mark.parametrize("code", [502, 503, 504])
def test_a_write_behind_a_gateway_that_gave_up_is_unknown(code: int) -> None:
    assert isinstance(refusal("POST", "/api", code, b"<html>bad gateway</html>"), OutcomeUnknownError)


PROXIED = {"https_proxy": "proxy:3128", "NO_PROXY": "10.0.0.0/8, .corp, example.com:6443, fd00::/8"}


@pytest.mark.parametrize(
    ("server", "spared"),
    [
        ("https://10.1.2.3:6443", True),
        ("https://11.1.2.3:6443", False),
        ("https://api.corp", True),
        ("https://corp", False),
        ("https://example.com:6443", True),
        ("https://example.com:443", False),
        ("https://a.example.com:6443", True),
        ("https://[fd00::1]:6443", True),
        ("https://127.0.0.1:6443", True),
        ("http://11.1.2.3", True),
    ],
)
def test_proxies_as_go_reads_them(server: str, spared: bool) -> None:
    assert proxy_for(server, PROXIED) == ("" if spared else "http://proxy:3128")
