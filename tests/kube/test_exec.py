"""What the error channel of a command says, and what is made of it."""

import pytest

from slinky.kube.exec import ExecResult, _result

ENDED = b'{"metadata":{},"status":"Failure","message":"command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}'
NEVER_BEGAN = b'{"metadata":{},"status":"Failure","message":"Internal error occurred: exec: \\"kill\\": executable file not found in $PATH","reason":"InternalError","code":500}'


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b'{"metadata":{},"status":"Success"}', ExecResult(0, "out", "err")),
        (ENDED, ExecResult(3, "out", "err", "command terminated with exit code 3")),
        (NEVER_BEGAN, ExecResult(None, "out", "err", 'Internal error occurred: exec: "kill": executable file not found in $PATH')),
        (b"not what was expected", ExecResult(None, "out", "err", "not what was expected")),
    ],
)
def test_how_it_ended(said: bytes, expected: ExecResult) -> None:
    assert _result(said, "out", "err") == expected
