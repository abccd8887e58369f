"""Which version is spoken."""

import pytest

from slinky.slurm import UnsupportedError
from slinky.slurm.versions import Version, choose, offered, require


def versions(*numbers: int) -> list[Version]:
    return [Version(number) for number in numbers]


def test_versions_are_read_from_paths() -> None:
    assert offered(["/slurm/v0.0.45/ping/", "/slurm/v0.0.43/jobs/", "/slurmdb/v0.0.40/jobs/", "/openapi/v3"]) == versions(43, 45)


@pytest.mark.parametrize(("served", "chosen"), [((42, 43, 44, 45), 45), ((43,), 43), ((45, 46, 47), 46), ((44, 42), 44)])
def test_the_newest_that_both_speak_is_chosen(served: tuple[int, ...], chosen: int) -> None:
    assert choose(versions(*served)) == Version(chosen)


def test_a_server_too_old_is_told_what_would_do() -> None:
    with pytest.raises(UnsupportedError, match=r"offers v0\.0\.40, v0\.0\.42.*needs v0\.0\.43.*25\.05"):
        choose(versions(40, 42))


def test_a_server_too_new_or_without_slurm_is_said_to_be() -> None:
    with pytest.raises(UnsupportedError, match="too new"):
        choose(versions(47))
    with pytest.raises(UnsupportedError, match="no Slurm API"):
        choose([])


def test_a_wanted_version_must_be_served_and_spoken() -> None:
    assert choose(versions(43, 45), Version(43)) == Version(43)
    with pytest.raises(UnsupportedError, match=r"offers v0\.0\.43"):
        choose(versions(43), Version(44))
    with pytest.raises(UnsupportedError, match="does not speak"):
        choose(versions(42, 43), Version(42))


def test_what_a_version_lacks_is_said_with_the_one_that_has_it() -> None:
    require("conf", Version(45))
    with pytest.raises(UnsupportedError, match=r"v0\.0\.45 \(Slurm 26\.05"):
        require("conf", Version(44))
