"""The client against the real API server, and against a line that fails."""

import asyncio
import datetime as dt
import gc
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slinky.kube import (
    NODES,
    PODS,
    Access,
    AlreadyExistsError,
    Attempt,
    Client,
    ConflictError,
    ConnectionFailedError,
    DeadlineError,
    ExecPlugin,
    ForbiddenError,
    Identity,
    InvalidError,
    NotFoundError,
    OutcomeUnknownError,
    PatchKind,
    Resource,
    Retries,
    TooManyRequestsError,
    UnauthorizedError,
)
from tests.kube_sandbox.conftest import eventually, pod
from tests.kube_sandbox.faults import FaultyLine

pytestmark = pytest.mark.sandbox

CONFIG_MAPS = Resource("", "v1", "configmaps", dict[str, Any])


async def test_an_object_is_made_read_changed_and_removed(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}}, namespace)
    made["data"]["k"] = "2"
    replaced = await client.replace(CONFIG_MAPS, "a", made, namespace)
    assert replaced["data"] == {"k": "2"}
    with pytest.raises(ConflictError) as conflict:
        await client.replace(CONFIG_MAPS, "a", made, namespace)
    assert (conflict.value.method, conflict.value.reason, conflict.value.code) == ("PUT", "Conflict", 409)
    merged = await client.patch(CONFIG_MAPS, "a", {"data": {"k": None, "m": "3"}}, namespace)
    assert merged["data"] == {"m": "3"}
    patched = await client.patch(CONFIG_MAPS, "a", [{"op": "add", "path": "/data/j", "value": "4"}], namespace, kind=PatchKind.JSON)
    assert patched["data"] == {"m": "3", "j": "4"}
    with pytest.raises(ConflictError):
        await client.delete(CONFIG_MAPS, "a", namespace, uid="another")
    await client.delete(CONFIG_MAPS, "a", namespace, uid=made["metadata"]["uid"])
    with pytest.raises(NotFoundError, match='configmaps "a" not found'):
        await client.get(CONFIG_MAPS, "a", namespace)


async def test_a_taken_name_and_a_wrong_field_have_their_errors(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a"), namespace)
    with pytest.raises(AlreadyExistsError):
        await client.create(PODS, pod("a"), namespace)
    with pytest.raises(InvalidError, match=r"metadata\.name"):
        await client.create(PODS, pod("No Name"), namespace)


async def test_strategic_patches_merge_lists_by_key(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a"), namespace)
    patch = {"spec": {"tolerations": [{"key": "new", "operator": "Exists"}]}}
    changed = await client.patch(PODS, "a", patch, namespace, kind=PatchKind.STRATEGIC)
    assert "new" in {toleration.key for toleration in changed.spec.tolerations}
    assert len(changed.spec.tolerations) > 1


async def test_apply_owns_what_it_names(client: Client, namespace: str) -> None:
    def document(data: dict[str, str]) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}

    await client.apply(CONFIG_MAPS, "a", document({"k": "1", "gone": "1"}), namespace)
    await client.patch(CONFIG_MAPS, "a", {"data": {"theirs": "1"}}, namespace)
    applied = await client.apply(CONFIG_MAPS, "a", document({"k": "2"}), namespace)
    assert applied["data"] == {"k": "2", "theirs": "1"}


async def test_binding_places_a_pod_with_annotations_and_only_that_pod(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("a"), namespace)
    with pytest.raises(ConflictError):
        await client.bind("a", namespace, "kwok-00", uid="another")
    await client.bind("a", namespace, "kwok-00", uid=made.metadata.uid, annotations={"slinky/cores": "0-3"})
    bound = await client.get(PODS, "a", namespace)
    assert (bound.spec.node_name, bound.metadata.annotations) == ("kwok-00", {"slinky/cores": "0-3"})
    with pytest.raises(ConflictError, match="already"):
        await client.bind("a", namespace, "kwok-01", uid=made.metadata.uid)


async def test_eviction_heeds_a_disruption_budget_and_the_uid(client: Client, namespace: str) -> None:
    budgets = Resource("policy", "v1", "poddisruptionbudgets", dict[str, Any])
    made = await client.create(PODS, pod("a", labels={"app": "a"}), namespace)
    await client.bind("a", namespace, "kwok-00")
    budget = {"metadata": {"name": "a"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}
    await client.create(budgets, budget, namespace)

    async def is_counted() -> bool:
        found = await client.get(budgets, "a", namespace)
        return bool(found["status"].get("currentHealthy") == 1)

    await eventually("the budget counted its pod", is_counted)
    with pytest.raises(TooManyRequestsError):
        await client.evict("a", namespace)
    await client.delete(budgets, "a", namespace)
    with pytest.raises(ConflictError):
        await client.evict("a", namespace, uid="another")
    await client.evict("a", namespace, uid=made.metadata.uid, grace_seconds=0)

    async def is_gone() -> bool:
        try:
            await client.get(PODS, "a", namespace)
        except NotFoundError:
            return True
        return False

    await eventually("the pod was gone", is_gone)


async def test_lists_come_in_pages_and_by_selector(client: Client, namespace: str) -> None:
    for number in range(7):
        await client.create(CONFIG_MAPS, {"metadata": {"name": f"m{number}", "labels": {"odd": str(number % 2)}}}, namespace)
    attempts: list[Attempt] = []
    async with Client(client.access, observer=attempts.append) as watched:
        odd = await watched.list(CONFIG_MAPS, namespace, labels="odd=1", page=2)
        one = await watched.list(CONFIG_MAPS, namespace, fields="metadata.name=m4")
    assert [item["metadata"]["name"] for item in odd.items] == ["m1", "m3", "m5"]
    assert [item["metadata"]["name"] for item in one.items] == ["m4"]
    assert int(odd.resource_version) > 0
    assert [(attempt.method, attempt.resource, attempt.outcome) for attempt in attempts] == [("GET", "configmaps", "ok")] * 3


async def test_a_write_whose_answer_is_lost_is_unknown_and_was_done(line: FaultyLine, client: Client, namespace: str) -> None:
    async with Client(line.access, seconds=2) as lossy:
        await lossy.get(NODES, "kwok-00")
        line.silence()
        with pytest.raises(OutcomeUnknownError, match="no answer within 2 s"):
            await lossy.create(PODS, pod("a"), namespace)
        line.heal()
    assert (await client.get(PODS, "a", namespace)).metadata.name == "a"


async def test_a_read_without_an_answer_ends_at_its_deadline(line: FaultyLine) -> None:
    async with Client(line.access) as lossy:
        await lossy.get(NODES, "kwok-00")
        line.silence()
        with pytest.raises(DeadlineError, match="no answer within"):
            await lossy.get(NODES, "kwok-00", seconds=0.3)
        with pytest.raises(ConnectionFailedError):  # a new connection: not even its handshake is answered
            await lossy.get(NODES, "kwok-00", seconds=0.3)


async def test_a_write_whose_connection_breaks_is_unknown(line: FaultyLine, namespace: str) -> None:
    async with Client(line.access) as lossy:
        await lossy.get(NODES, "kwok-00")
        line.silence()
        writing = asyncio.create_task(lossy.create(PODS, pod("a"), namespace))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.2, line.reset)
        with pytest.raises(OutcomeUnknownError):
            await writing
        line.heal()


async def test_what_was_never_sent_is_tried_again_writes_too(
    line: FaultyLine, client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: list[Attempt] = []
    await line.refuse()
    async with Client(line.access, observer=outcomes.append, retries=Retries(most=20)) as lossy:
        writing = asyncio.create_task(lossy.create(PODS, pod("a"), namespace))
        with caplog.at_level(logging.WARNING):
            await eventually("two tries failed", lambda: len(outcomes) >= 2)
        assert "try 2 of 21" in caplog.text
        await line.listen()
        await writing
    assert {attempt.outcome for attempt in outcomes} == {"ConnectionFailedError", "ok"}
    assert (await client.get(PODS, "a", namespace)).metadata.name == "a"


async def test_tries_end(line: FaultyLine) -> None:
    await line.refuse()
    outcomes: list[Attempt] = []
    async with Client(line.access, observer=outcomes.append, retries=Retries(most=2)) as lossy:
        with pytest.raises(ConnectionFailedError):
            await lossy.get(NODES, "kwok-00")
    assert len(outcomes) == 3


def test_requests_that_are_given_up_leave_no_socket_behind(access: Access) -> None:
    """The loop that ends right after would leave it open."""

    async def given_up(seconds: float) -> None:
        async with Client(access) as client:
            await asyncio.gather(*(client.list(NODES) for _ in range(4)))
            lists = [asyncio.create_task(client.list(NODES)) for _ in range(4)]
            await asyncio.sleep(seconds)
            for one in lists:
                one.cancel()
            await asyncio.gather(*lists, return_exceptions=True)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for number in range(20):
            asyncio.run(given_up(number * 0.0015))
            gc.collect()
    assert not [str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)]


async def test_a_server_that_is_not_trusted_is_refused_at_once(access: Access) -> None:
    outcomes: list[Attempt] = []
    for wrong in (replace(access, authority=""), replace(access, server_name="elsewhere")):
        async with Client(wrong, observer=outcomes.append) as doubtful:
            with pytest.raises(ConnectionFailedError, match="TLS"):
                await doubtful.get(NODES, "kwok-00")
    assert len(outcomes) == 2
    async with Client(replace(access, authority="", insecure=True)) as careless:
        await careless.get(NODES, "kwok-00")


# Credentials


async def service_token(client: Client, namespace: str) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await client.raw("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", body=request)
    return str(msgspec.json.decode(answer)["status"]["token"])


async def whoami(client: Client) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.raw("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    return str(msgspec.json.decode(answer)["status"]["userInfo"]["username"])


async def test_a_token_is_believed_and_may_less(client: Client, namespace: str) -> None:
    token = await service_token(client, namespace)
    async with Client(replace(client.access, identity=Identity(token=token))) as other:
        assert await whoami(other) == f"system:serviceaccount:{namespace}:default"
        with pytest.raises(ForbiddenError) as forbidden:
            await other.get(NODES, "kwok-00")
        assert token not in f"{forbidden.value!r} {other.access!r}"


async def test_a_renewed_token_file_is_used_after_a_refusal(client: Client, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("expired")
    outcomes: list[Attempt] = []
    async with Client(replace(client.access, identity=Identity(token_file=file)), observer=outcomes.append) as other:
        with pytest.raises(UnauthorizedError):
            await whoami(other)
        assert len(outcomes) == 2
        file.write_text("expired too")
        await other.transport._credentials.headers()
        file.write_text(await service_token(client, namespace))
        assert await whoami(other) == f"system:serviceaccount:{namespace}:default"


async def test_a_plugin_is_run_once_for_many_requests(client: Client, namespace: str, tmp_path: Path) -> None:
    token = await service_token(client, namespace)
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}}
    (tmp_path / "answer").write_bytes(msgspec.json.encode(answer))
    script = tmp_path / "login"
    script.write_text(f"#!/bin/sh\necho run >> '{tmp_path}/runs'\ncat '{tmp_path}/answer'\n")
    script.chmod(0o755)
    async with Client(replace(client.access, identity=Identity(plugin=ExecPlugin(str(script))))) as other:
        names = await asyncio.gather(*(whoami(other) for _ in range(8)))
    assert set(names) == {f"system:serviceaccount:{namespace}:default"}
    assert (tmp_path / "runs").read_text().count("run") == 1


async def test_a_plugins_certificate_is_shown_and_renewed(client: Client, tmp_path: Path) -> None:
    who = client.access.identity
    soon = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    status = {"clientCertificateData": who.certificate.decode(), "clientKeyData": who.key.decode(), "expirationTimestamp": soon}
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (tmp_path / "answer").write_bytes(msgspec.json.encode(answer))
    script = tmp_path / "login"
    script.write_text(f"#!/bin/sh\necho run >> '{tmp_path}/runs'\ncat '{tmp_path}/answer'\n")
    script.chmod(0o755)
    async with Client(replace(client.access, identity=Identity(plugin=ExecPlugin(str(script))))) as other:
        expected = await whoami(client)

        async def renewed_twice() -> bool:
            assert await whoami(other) == expected
            return (tmp_path / "runs").read_text().count("run") >= 3

        await eventually("the plugin was run again", renewed_twice)


async def test_impersonation(client: Client) -> None:
    who = replace(client.access.identity, impersonate="jane", impersonate_groups=("g1", "g2"))
    async with Client(replace(client.access, identity=who)) as other:
        assert await whoami(other) == "jane"
