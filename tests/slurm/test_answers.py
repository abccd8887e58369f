"""What an answer means, and whether trying again can help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.slurm import (
    AlreadyDoneError,
    AuthenticationError,
    BadAnswerError,
    ForbiddenError,
    NotFoundError,
    Outcome,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    UnsupportedError,
)
from slinky.slurm.answers import Again, envelope_fault, failed_answer, unreadable
from slinky.slurm.numbers import Envelope, WireError


def said(number: int, text: str = "what happened") -> bytes:
    return b'{"errors": [{"error_number": %d, "error": "in short", "description": "%s"}], "warnings": []}' % (number, text.encode())


@pytest.mark.parametrize(
    ("status", "body", "kind", "again"),
    [
        (404, said(2017), NotFoundError, Again.NEVER),
        (404, b"Unable to find requested URL endpoint.", UnsupportedError, Again.NEVER),
        (401, b"Authentication failure", AuthenticationError, Again.RENEWED),
        (511, said(1007), AuthenticationError, Again.RENEWED),
        (500, said(6010), AuthenticationError, Again.RENEWED),  # a submit with the token of a user that Slurm does not know
        (500, said(6004), AuthenticationError, Again.RENEWED),
        (500, said(2010), ForbiddenError, Again.NEVER),  # an update by a token whose user is no administrator
        (422, said(2011), AlreadyDoneError, Again.NEVER),
        (422, said(2014), RefusedError, Again.NEVER),
        (403, said(2002), ForbiddenError, Again.NEVER),
        (502, said(1800), UnavailableError, Again.ALWAYS),
        (504, said(5004), OutcomeUnknownError, Again.IF_HARMLESS),
        (500, said(-1), OutcomeUnknownError, Again.IF_HARMLESS),
        (500, b"Unspecified error", OutcomeUnknownError, Again.IF_HARMLESS),
        (503, b"upstream connect error or disconnect", OutcomeUnknownError, Again.IF_HARMLESS),
        (408, b"", OutcomeUnknownError, Again.IF_HARMLESS),
        (429, b"", UnavailableError, Again.ALWAYS),
    ],
)
def test_a_failed_change(status: int, body: bytes, kind: type[Exception], again: Again) -> None:
    fault = failed_answer("POST /x", True, status, body)
    assert type(fault.error) is kind
    assert fault.again is again
    assert fault.error.request == "POST /x"


@pytest.mark.parametrize(("status", "body"), [(504, said(5004)), (500, said(-1)), (500, b"Unspecified error"), (502, b"<html>")])
def test_a_failed_read_has_a_known_outcome(status: int, body: bytes) -> None:
    fault = failed_answer("GET /x", False, status, body)
    assert type(fault.error) is UnavailableError
    assert fault.error.outcome is Outcome.NOT_DONE


def test_a_success_with_errors_inside_is_none() -> None:
    assert envelope_fault("GET /x", False, Envelope(errors=[])) is None
    assert envelope_fault("GET /x", False, Envelope(errors=None)) is None
    fault = envelope_fault("GET /x", False, Envelope(errors=[WireError(0, "No error", "Failure to query node nope")]))
    assert fault
    assert type(fault.error) is NotFoundError
    assert fault.error.number is None


def test_the_error_carries_what_slurm_said() -> None:
    error = failed_answer("GET /x", False, 404, said(2017, "no job 7")).error
    assert (error.number, error.name, error.description) == (2017, "ESLURM_INVALID_JOB_ID", "no job 7: in short")
    assert str(error) == "GET /x: no job 7: in short (ESLURM_INVALID_JOB_ID 2017)"


def test_what_cannot_be_read_is_unknown_if_it_changes_something() -> None:
    assert type(unreadable("POST /x", True, "cut").error) is OutcomeUnknownError
    assert type(unreadable("GET /x", False, "cut").error) is BadAnswerError


@given(st.integers(400, 599), st.binary() | st.integers(-2, 10000).map(said))
def test_a_change_that_slurm_may_have_made_is_never_called_not_done(status: int, body: bytes) -> None:
    fault = failed_answer("POST /x", True, status, body)
    if fault.again is Again.IF_HARMLESS:
        assert fault.error.outcome is Outcome.UNKNOWN
    else:
        assert isinstance(fault.error, AuthenticationError | RefusedError | UnavailableError | UnsupportedError)


def test_an_authentication_error_is_no_refusal_of_the_request() -> None:
    """Whoever catches RefusedError takes it for Slurm's last word on the request; Slurm has not looked at it."""
    assert not issubclass(AuthenticationError, RefusedError)
    assert {type(failed_answer("POST /x", True, status, said(number)).error) for status, number in AUTHENTICATION} == {AuthenticationError}


AUTHENTICATION = [(401, 0), (511, 0), (500, 1007), (511, 1007), (500, 6000), (500, 6001), (422, 6010), (500, 9008)]
