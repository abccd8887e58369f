"""The operator's configuration: who may have a token, and what is refused at start."""

from pathlib import Path

import pytest

from slinky.operator.settings import Settings, SettingsError, load_settings


def loaded(folder: Path, text: str) -> Settings:
    file = folder / "config.yaml"
    file.write_text(text)
    return load_settings(file)


def test_an_empty_file_is_enough(tmp_path: Path) -> None:
    assert loaded(tmp_path, "") == Settings()


def test_anybody_but_root_and_slurm_may_have_a_token_unless_a_list_says_otherwise() -> None:
    settings = Settings()
    assert settings.allows_token("site", "alice")
    assert not settings.allows_token("site", "root")
    assert not settings.allows_token("site", "slurm")


def test_users_outside_the_list_may_have_no_token(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "allowedTokenUsers: {site: [alice, 'ml-*'], 'team-*': ['*'], ops: [root]}")
    assert settings.allows_token("site", "alice")
    assert settings.allows_token("site", "ml-train")
    assert not settings.allows_token("site", "bob")
    assert not settings.allows_token("elsewhere", "alice")
    assert settings.allows_token("team-a", "bob")
    assert not settings.allows_token("team-a", "root")
    assert settings.allows_token("ops", "root")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("namespces: [a]", "namespces is not a setting (docs/operator-configuration.md lists them)"),
        ("slurm: {requestSeconds: 0}", "slurm.requestSeconds is 0; it must be more than 0"),
        ("slurm: {currentSeconds: 1}", "slurm.currentSeconds is 1, less than slurm.slowestPoll (5)"),
        ("slurm: {slowestPoll: 0.1}", "slurm.slowestPoll is 0.1, less than slurm.fastestPoll (0.5)"),
        ("slurm: {tokenSeconds: 5}", "slurm.tokenSeconds is 5; it must be 60 or more"),
        ("leader: {seconds: 1}", "leader.seconds is 1; it must be 3 or more"),
        ("concurrency: 0", "concurrency is 0; it must be 1 or more"),
        ("admission: {certificateFile: a}", "admission.certificateFile and admission.keyFile go together"),
        ("admission: {url: 'http://a'}", "admission.url is 'http://a'; the API server calls https only"),
        ("admission: {timeoutSeconds: 31}", "timeoutSeconds is 31; it must be from 2 to 30"),
        ("admission: {matchPolicy: Near}", "matchPolicy"),
        ("namespaces: ['']", "namespaces has an empty name"),
    ],
)
def test_what_cannot_be_worked_with_is_said_at_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=r"config\.yaml") as caught:
        loaded(tmp_path, text)
    assert said in str(caught.value)
