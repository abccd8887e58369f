"""slurmdbd.conf, as slurmdbd reads it."""

from typing import Any

import msgspec
import pytest

from slinky.operator.conf.slurmdbd import slurmdbd_conf
from slinky.operator.conf.text import UnwritableValueError, pairs_of, parse
from slinky.operator.kinds import Accounting


def said(password: str = "", **spec: Any) -> dict[str, str]:
    storage = {"host": "db.example.org", "username": "slurm", "passwordKeyRef": {"name": "db", "key": "p"}, **spec.pop("storage", {})}
    accounting = msgspec.convert({"metadata": {"name": "a", "namespace": "ns"}, "spec": {"storageConfig": storage, **spec}}, Accounting)
    return {pair.key: pair.value for pair in pairs_of(parse(slurmdbd_conf(accounting, password)))}


def test_it_says_where_the_database_is_and_who_it_is_itself() -> None:
    assert said("word") == {
        "DbdHost": "a-accounting-0",
        "DbdPort": "6819",
        "SlurmUser": "slurm",
        "LogTimeFormat": "iso8601_ms,format_stderr",
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        "AuthType": "auth/slurm",
        "AuthAltTypes": "auth/jwt",
        "AuthAltParameters": "jwt_key=/etc/slurm/jwt.key",
        "AuthInfo": "use_client_ids",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "db.example.org",
        "StoragePort": "3306",
        "StorageLoc": "slurm_acct_db",
        "StorageUser": "slurm",
        "StoragePass": "word",
    }


@pytest.mark.parametrize("password", ["p#ss", "a\\b", 'q"uote', "two words", "s#p a\\ce", "$x'=;,%"])
def test_a_password_of_any_letters_is_read_as_it_was_given(password: str) -> None:
    assert said(password)["StoragePass"] == password


@pytest.mark.parametrize("password", ["two\nlines", 'both "quotes" and spaces', '"begins so'])
def test_a_password_that_the_file_cannot_hold_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(UnwritableValueError) as refused:
        said(password)
    assert password not in str(refused.value)


def test_tls_names_the_files_that_are_given_and_an_administrators_parameters_join_them() -> None:
    tls = {"caRef": {"name": "t", "key": "ca"}, "keyRef": {"name": "t", "key": "k"}}
    found = said(storage={"tls": tls}, extraConf="StorageParameters=SSL_CIPHER=X,ssl_ca=/mine.pem\nStoragePort=3307\n")
    assert found["StorageParameters"] == "ssl_ca=/mine.pem,SSL_KEY=/etc/slurm/storage-key.pem,SSL_CIPHER=X"
    assert found["StoragePort"] == "3307"
    assert "StorageParameters" not in said()
