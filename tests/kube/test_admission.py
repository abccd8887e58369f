"""The admission server over TLS, asked as the API server asks."""

import asyncio
import base64
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from slinky.kube import Pod
from slinky.kube.admission import AdmissionRequest, AdmissionResponse, AdmissionServer, CertificateFiles, Handler, OnFailure
from slinky.kube.admission.certificates import issue

POD = {"metadata": {"name": "a", "namespace": "n"}, "spec": {"containers": [{"name": "c"}]}}


@asynccontextmanager
async def served(folder: Path, handler: Handler, **options: Any) -> AsyncIterator["Asker"]:
    issued = issue(["127.0.0.1"], dt.datetime.now(dt.UTC))
    for name, data in {"tls.crt": issued.certificate, "tls.key": issued.key}.items():
        (folder / name).write_bytes(data)
    certificate = CertificateFiles(folder / "tls.crt", folder / "tls.key")
    server = AdmissionServer({"/pods": handler}, certificate, host="127.0.0.1", port=0, **options)
    async with server.running(), aiohttp.ClientSession() as session:
        yield Asker(session, f"https://127.0.0.1:{server.port}/pods", ssl.create_default_context(cadata=issued.authorities.decode()))


class Asker:
    def __init__(self, session: aiohttp.ClientSession, url: str, tls: ssl.SSLContext) -> None:
        self._session, self._url, self._tls = session, url, tls

    async def post(self, body: Any) -> tuple[int, str]:
        async with self._session.post(self._url, data=body, ssl=self._tls) as answer:
            return answer.status, await answer.text()

    async def ask(self, **request: Any) -> dict[str, Any]:
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u-1", "kind": {"kind": "Pod"}, **request},
        }
        status, text = await self.post(json.dumps(review))
        assert status == 200, text
        answer = json.loads(text)
        assert (answer["kind"], answer["apiVersion"], answer["response"]["uid"]) == ("AdmissionReview", "admission.k8s.io/v1", "u-1")
        found: dict[str, Any] = answer["response"]
        return found


def toleration(request: AdmissionRequest) -> AdmissionResponse:
    document = request.document()
    document["spec"]["schedulerName"] = "slurm"
    document["metadata"].setdefault("annotations", {})["slinky/a"] = "b"
    return AdmissionResponse.mutate(request, document, warnings=["mind the gap"])


async def test_a_mutation_is_a_patch(tmp_path: Path) -> None:
    async with served(tmp_path, toleration) as asker:
        answer = await asker.ask(operation="CREATE", object=POD)
    assert (answer["allowed"], answer["patchType"], answer["warnings"]) == (True, "JSONPatch", ["mind the gap"])
    assert json.loads(base64.b64decode(answer["patch"])) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"slinky/a": "b"}},
        {"op": "add", "path": "/spec/schedulerName", "value": "slurm"},
    ]


async def test_an_async_handler_reads_typed_objects_and_refuses_with_a_sentence(tmp_path: Path) -> None:
    async def judge(request: AdmissionRequest) -> AdmissionResponse:
        await asyncio.sleep(0)
        new, old = request.read(Pod), request.read_old(Pod)
        assert new is not None
        assert request.user_info.username == "jane"
        return AdmissionResponse.refuse(f"{new.metadata.name} may not be; before: {old}", code=422)

    async with served(tmp_path, judge) as asker:
        answer = await asker.ask(operation="CREATE", object=POD, oldObject=None, userInfo={"username": "jane", "groups": ["g"]})
    assert (answer["allowed"], answer["status"]) == (False, {"message": "a may not be; before: None", "code": 422})


@pytest.mark.parametrize(("rule", "allowed"), [(OnFailure.REFUSE, False), (OnFailure.ALLOW, True)])
async def test_a_handler_that_fails_or_is_late_is_answered_for(tmp_path: Path, rule: OnFailure, allowed: bool) -> None:
    outcomes: list[tuple[str, str]] = []

    async def judge(request: AdmissionRequest) -> AdmissionResponse:
        if request.name == "late":
            await asyncio.Event().wait()
        raise KeyError("oops")

    observer = lambda path, outcome, _: outcomes.append((path, outcome))  # noqa: E731
    async with served(tmp_path, judge, on_failure=rule, deadline=0.2, observer=observer) as asker:
        failed = await asker.ask(operation="CREATE", object=POD, name="a", namespace="n")
        late = await asker.ask(operation="CREATE", object=POD, name="late")
    for answer, why in ((failed, "CREATE of Pod n/a: KeyError"), (late, "no decision within 0.2 s")):
        assert answer["allowed"] is allowed
        assert why in (answer["warnings"][0] if allowed else answer["status"]["message"])
    assert outcomes == [("/pods", "failed"), ("/pods", "late")]


async def test_bodies_that_are_too_large_or_no_reviews_are_turned_away(tmp_path: Path) -> None:
    async with served(tmp_path, toleration, body_limit=100_000) as asker:
        assert (await asker.post(b"x" * 200_000))[0] == 413
        status, text = await asker.post(b'{"kind": "AdmissionReview"}')
        assert status == 400
        assert "not an AdmissionReview" in text
        assert (await asker.ask(operation="CREATE", object=POD))["allowed"]


async def test_one_that_leaves_answers_on_and_sends_its_callers_elsewhere(tmp_path: Path) -> None:
    """A caller that asks all the while, by connections that it keeps, never meets a closed one."""
    issued = issue(["127.0.0.1"], dt.datetime.now(dt.UTC))
    for name, data in {"tls.crt": issued.certificate, "tls.key": issued.key}.items():
        (tmp_path / name).write_bytes(data)
    review = json.dumps({"request": {"uid": "u", "operation": "CREATE", "object": POD}})
    context = ssl.create_default_context(cadata=issued.authorities.decode())
    told_to_close: list[bool] = []
    files = CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = AdmissionServer({"/pods": toleration}, files, host="127.0.0.1", port=0, leave_seconds=60.0)
    async with aiohttp.ClientSession() as session:
        running = server.running()
        await running.__aenter__()

        async def ask() -> None:
            async with session.post(f"https://127.0.0.1:{server.port}/pods", data=review, ssl=context) as answer:
                assert answer.status == 200
                await answer.read()
                told_to_close.append(answer.headers.get("Connection") == "close")

        await ask()
        await ask()
        assert told_to_close == [False, False]
        leaving = asyncio.create_task(running.__aexit__(None, None, None))
        while len(told_to_close) < 20:
            await ask()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert set(told_to_close[3:]) == {True}


def upwards(document: dict[str, Any], wanted: str) -> dict[str, Any]:
    if wanted != "g/v2":
        raise ValueError(f"there is no version {wanted}; there is g/v2")
    return document | {"apiVersion": wanted}


@asynccontextmanager
async def converting(folder: Path) -> AsyncIterator["Asker"]:
    issued = issue(["127.0.0.1"], dt.datetime.now(dt.UTC))
    for name, data in {"tls.crt": issued.certificate, "tls.key": issued.key}.items():
        (folder / name).write_bytes(data)
    certificate = CertificateFiles(folder / "tls.crt", folder / "tls.key")
    server = AdmissionServer({}, certificate, converters={"/convert": upwards}, host="127.0.0.1", port=0)
    async with server.running(), aiohttp.ClientSession() as session:
        yield Asker(session, f"https://127.0.0.1:{server.port}/convert", ssl.create_default_context(cadata=issued.authorities.decode()))


async def test_objects_are_converted_as_the_api_server_asks(tmp_path: Path) -> None:
    objects: list[dict[str, Any]] = [{"apiVersion": "g/v1", "kind": "K", "spec": {"a": 1}}, {"apiVersion": "g/v1", "kind": "K"}]
    async with converting(tmp_path) as asker:
        status, text = await asker.post(json.dumps({"request": {"uid": "u-2", "desiredAPIVersion": "g/v2", "objects": objects}}))
        assert status == 200
        answer = json.loads(text)
        assert (answer["kind"], answer["apiVersion"]) == ("ConversionReview", "apiextensions.k8s.io/v1")
        assert answer["response"] == {
            "uid": "u-2",
            "result": {"status": "Success"},
            "convertedObjects": [each | {"apiVersion": "g/v2"} for each in objects],
        }


async def test_a_version_that_there_is_not_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with converting(tmp_path) as asker:
        _, text = await asker.post(json.dumps({"request": {"uid": "u-3", "desiredAPIVersion": "g/v9", "objects": [{}]}}))
        found = json.loads(text)["response"]
        assert found == {"uid": "u-3", "result": {"status": "Failure", "message": "there is no version g/v9; there is g/v2"}}
        assert (await asker.post("no review"))[0] == 400
