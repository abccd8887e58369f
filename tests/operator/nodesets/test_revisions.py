"""Earlier templates, where they are to be kept."""

import msgspec

from slinky.operator.nodesets.revisions import Revision, new_revision, surplus_revisions
from tests.operator.nodesets.scene import a_nodeset


def kept(digest: str, number: int) -> Revision:
    meta = {"name": f"workers-{digest}-{number}", "labels": {"controller-revision-hash": digest}}
    return msgspec.convert({"metadata": meta, "revision": number}, Revision)


def test_a_new_template_is_kept_with_the_next_number() -> None:
    made = new_revision(a_nodeset(extraConf="Weight=2"), "b", [kept("a", 1)])
    assert made is not None
    assert (made["revision"], made["data"]["spec"]["extraConf"]) == (2, "Weight=2")
    assert new_revision(a_nodeset(), "b", [kept("a", 1), kept("b", 2)]) is None


def test_a_template_that_is_taken_back_becomes_the_newest() -> None:
    made = new_revision(a_nodeset(), "a", [kept("a", 1), kept("b", 2)])
    assert made is not None
    assert made["revision"] == 3


def test_the_oldest_go_beyond_the_limit_but_never_one_that_a_pod_has() -> None:
    held = [kept(digest, number) for number, digest in enumerate("abcde", 1)]
    assert [one.revision for one in surplus_revisions(held, "e", {"a"}, 1)] == [2, 3]
    assert [one.revision for one in surplus_revisions(held, "e", {"a"}, 0)] == [2, 3, 4]
