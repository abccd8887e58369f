"""Bytes to events, whatever the network makes of them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slinky.kube import ExpiredError, Pod
from slinky.kube.errors import BadAnswerError
from slinky.kube.watch import EventReader, LineSplitter


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    splitter = LineSplitter()
    seen = [line for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True) for line in splitter.feed(stream[start:end])]
    assert seen == lines


def test_a_line_without_end_is_kept_back() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"a\nb") == [b"a"]
    assert splitter.feed(b"") == []
    assert splitter.feed(b"c\n") == [b"bc"]


READER = EventReader(Pod, "/api/v1/pods")


def test_an_object_is_read_without_what_is_not_named() -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "n", "managedFields": [{"manager": "x"}], "creationTimestamp": None},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [], "resources": {"requests": {"cpu": "1"}}}], "unheardOf": {}},
    }
    event = READER.read(msgspec.json.encode({"type": "ADDED", "object": pod}))
    assert event.object is not None
    assert event.object.spec.containers[0].resources.requests == {"cpu": "1"}
    assert str(event.object.key) == "n/p"


@pytest.mark.parametrize("containers", ["null", "[]"])
def test_a_bookmark_may_be_half_empty(containers: str) -> None:
    line = (
        '{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}},'
        f'"spec":{{"containers":{containers}}},"status":{{}}}}}}'
    )
    event = READER.read(line.encode())
    assert event.object is not None
    assert event.object.metadata.resource_version == "7"
    assert event.ends_initial


def test_an_error_is_raised_as_what_it_is() -> None:
    status = {"kind": "Status", "metadata": {}, "status": "Failure", "message": "too old", "reason": "Expired", "code": 410}
    with pytest.raises(ExpiredError, match="too old"):
        READER.read(msgspec.json.encode({"type": "ERROR", "object": status}))


def test_an_unreadable_object_is_named_and_does_not_raise() -> None:
    pod = {"metadata": {"name": "odd", "namespace": "n"}, "spec": {"containers": "none"}}
    event = READER.read(msgspec.json.encode({"type": "ADDED", "object": pod}))
    assert event.object is None
    assert "n/odd" in (event.problem or "")


def test_what_is_no_event_at_all_raises() -> None:
    with pytest.raises(BadAnswerError, match="not a watch event"):
        READER.read(b"<html>")
