"""A side that cannot be asked: what went wrong, told as a finding; and a token, read without being believed."""

import datetime as dt
from pathlib import Path

import msgspec
import pytest

from slinky.explain.asking import AskKube, AskSlurm
from slinky.explain.findings import Finding
from slinky.explain.gathering import gather_job, gather_pod
from slinky.explain.pods import pod_findings
from slinky.explain.troubles import Token, controller_trouble, kube_trouble, read_token, slurm_trouble
from slinky.kube import ApiError, ConnectionFailedError
from slinky.kube.errors import Status, refusal_by_status
from slinky.slurm import AuthenticationError, ConfigurationError, ForbiddenError, Ping, UnavailableError
from slinky.slurm.credentials import mint
from tests.explain.worlds import NOW, SETTINGS

FRESH, OLD = Token("slurm", NOW + dt.timedelta(hours=1)), Token("slurm", NOW - dt.timedelta(hours=1))

NOTHING = kube_trouble(OSError(), "")


def said(code: int) -> ApiError:
    return refusal_by_status("GET", "/api/v1/nodes", Status(code=code, message="no"))


CASES: dict[str, tuple[Finding, str]] = {
    "kubernetes-unreachable": (kube_trouble(ConnectionFailedError("GET", "/x", "refused"), "nodes"), "kubeconfig"),
    "kubernetes-unauthorized": (kube_trouble(said(401), "nodes"), "log in again"),
    "kubernetes-forbidden": (kube_trouble(said(403), "nodes"), "get, list on nodes"),
    "slurm-unreachable": (slurm_trouble(UnavailableError("refused"), "nodes", SETTINGS, FRESH, NOW), "slurmRestApi, which is http://localhost:6820"),
    "slurm-token-unreadable": (slurm_trouble(ConfigurationError("no file"), "it", SETTINGS, None, NOW), "slurm.tokenFile"),
    "slurm-token-expired": (slurm_trouble(AuthenticationError("no"), "nodes", SETTINGS, OLD, NOW), "scontrol token username=slurm"),
    "slurm-token-refused": (slurm_trouble(AuthenticationError("no"), "nodes", SETTINGS, FRESH, NOW), "jwt_key"),
    "slurm-forbidden": (slurm_trouble(ForbiddenError("no"), "conf", SETTINGS, FRESH, NOW), "this one's user is slurm"),
    "slurm-controller-down": (controller_trouble([Ping("head", status="timed out")]) or NOTHING, "start slurmctld on head"),
}  # fmt: skip


@pytest.mark.parametrize("code", CASES)
def test_what_went_wrong_is_told_with_what_to_do(code: str) -> None:
    found, change = CASES[code]
    assert (found.code, change in found.change) == (code, True), found


def test_one_controller_of_several_is_enough() -> None:
    assert controller_trouble([]) is None
    assert controller_trouble([Ping("a"), Ping("b", responding=True)]) is None


def test_a_token_is_read_and_what_is_none_says_nothing() -> None:
    token = read_token(mint(b"k" * 32, "alice", 60, NOW.timestamp()))
    assert (token.user, token.ends) == ("alice", NOW + dt.timedelta(seconds=60))
    for text in ("", "x", "a.b.c", "a.e30.c", "a.W10.c"):
        assert read_token(text) == Token()


async def test_with_nobody_there_on_either_side_both_are_findings_and_nothing_is_raised(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(mint(b"k" * 32, "slurm", 600, dt.datetime.now(dt.UTC).timestamp()))
    nobody = msgspec.structs.replace(
        SETTINGS, slurm_rest_api="http://127.0.0.1:9", slurm=msgspec.structs.replace(SETTINGS.slurm, token_file=str(file))
    )
    facts = await gather_pod(nobody, ConnectionFailedError("GET", "/x", "refused"), "team", "train-0")
    assert {each.code for each in pod_findings(facts)} == {"kubernetes-unreachable", "slurm-unreachable"}
    assert [each.code for each in (await gather_job(SETTINGS, OSError("no kubeconfig"), 7)).troubles] == [
        "kubernetes-unreachable",
        "slurm-token-unreadable",
    ]


@pytest.mark.parametrize(
    ("refused", "code"), [(AuthenticationError("no"), "slurm-token-refused"), (UnavailableError("no"), "slurm-controller-down")]
)
async def test_a_ping_that_fails_for_the_token_is_not_taken_for_a_controller_that_is_down(refused: Exception, code: str) -> None:
    class Refuses:
        partitions = property(lambda self: self)

        async def ping(self) -> list[Ping]:
            return [Ping("head", status="Protocol authentication error")]

        async def all(self) -> None:
            raise refused

    async with AskSlurm(SETTINGS) as slurm:
        slurm.troubles.clear()
        slurm.token, slurm._client = Token("slurm"), Refuses()  # type: ignore[assignment]
        down = await slurm.controller()
    assert code in {down.code if down else "", *(each.code for each in slurm.troubles)}
    assert (down is None) == (code == "slurm-token-refused")


async def test_a_dead_side_is_asked_once() -> None:
    asked = []

    async def fails(_: object) -> None:
        asked.append(1)
        raise OSError("gone")

    async with AskSlurm(SETTINGS) as slurm, AskKube(OSError("x")) as kube:
        slurm.troubles.clear()
        slurm._client = object()  # type: ignore[assignment]
        assert [await slurm.ask("a", fails, 1), await slurm.ask("b", fails, 2)] == [1, 2]
        assert await kube.ask("c", fails, 3) == 3
    assert len(asked) == 1
    assert {"a", "b"} <= slurm.unread
    assert len(slurm.troubles) == 1
