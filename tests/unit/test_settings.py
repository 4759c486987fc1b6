"""Settings are read once, wrong ones are named with what would be right, and secrets are never shown."""

from datetime import timedelta
from pathlib import Path

import pytest

from suture.cli.reference import replaced, settings_table
from suture.engine import Lease
from suture.errors import ConfigError
from suture.settings import Settings, fields, names, secret

ROOT = Path(__file__).resolve().parents[2]


def test_without_any_setting_the_defaults_hold():
    assert Settings.read({}) == Settings.read({"PATH": "/bin", "HOME": "/"})
    assert Settings.read({}).lease.duration == timedelta(seconds=30)


def test_only_what_is_passed_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUTURE_LOG_LEVEL", "debug")
    assert Settings.read({}).log.level == "info"


@pytest.mark.parametrize(("text", "seconds"), [("45", 45), ("31.5", 31.5), ("PT1M", 60)])
def test_a_duration_is_seconds_or_iso_8601(text: str, seconds: float):
    assert Settings.read({"SUTURE_LEASE_DURATION": text}).lease.duration == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["0", "-3", "soon", "nan"])
def test_a_duration_that_is_none_is_refused_with_its_name_and_value(text: str):
    with pytest.raises(ConfigError, match=f"SUTURE_WORKER_POLL is `{text}`"):
        Settings.read({"SUTURE_WORKER_POLL": text})


def test_names_are_separated_by_commas():
    assert Settings.read({"SUTURE_WORKER_QUEUES": "fast, slow,"}).worker.queues == ("fast", "slow")


def test_a_field_of_several_words_is_found():
    assert Settings.read({"SUTURE_WORKER_HEALTH_ADDRESS": ""}).worker.health_address == ""


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("SUTURE_DATABASE_POOOL", "SUTURE_DATABASE_POOL"),
        ("SUTURE_LEASE_HEARTBEATS", "SUTURE_LEASE_HEARTBEAT"),
        ("SUTURE_LOG_LVL", "SUTURE_LOG_LEVEL"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known(wrong: str, right: str):
    with pytest.raises(ConfigError, match=rf"{wrong} is no setting\. Did you mean {right}\?"):
        Settings.read({wrong: "1"})


def test_every_wrong_name_and_every_wrong_value_is_told_at_once():
    with pytest.raises(ConfigError, match=r"SUTURE_AAA is no setting.*; SUTURE_ZZZ is no setting"):
        Settings.read({"SUTURE_ZZZ": "1", "SUTURE_AAA": "1"})
    with pytest.raises(ConfigError, match=r"SUTURE_DATABASE_POOL is `many`.*; SUTURE_LOG_LEVEL is `loud`.*'debug', 'info'"):
        Settings.read({"SUTURE_LOG_LEVEL": "loud", "SUTURE_DATABASE_POOL": "many"})


def test_what_kubernetes_tells_of_a_service_beside_us_is_no_setting_of_ours():
    links = {
        "SUTURE_API_SERVICE_HOST": "10.0.0.7",
        "SUTURE_API_SERVICE_PORT": "80",
        "SUTURE_API_SERVICE_PORT_HTTP": "80",
        "SUTURE_API_PORT": "tcp://10.0.0.7:80",
        "SUTURE_API_PORT_80_TCP": "tcp://10.0.0.7:80",
        "SUTURE_API_PORT_80_TCP_PROTO": "tcp",
        "SUTURE_API_PORT_80_TCP_PORT": "80",
        "SUTURE_API_PORT_80_TCP_ADDR": "10.0.0.7",
        "SUTURE_PORT": "tcp://10.0.0.8:80",
    }
    assert Settings.read(links) == Settings.read({})
    with pytest.raises(ConfigError, match="SUTURE_API_PORT is no setting"):
        Settings.read({"SUTURE_API_PORT": "8080"})


def test_each_part_of_a_lease_is_a_setting_with_the_engines_own_default():
    assert Lease(**dict(Settings.read({}).lease)) == Lease()
    found = Settings.read({"SUTURE_LEASE_CRASH_LIMIT": "9", "SUTURE_LEASE_RESTART": "20"}).lease
    assert (found.crash_limit, found.restart) == (9, timedelta(seconds=20))


def test_a_suspect_must_come_before_a_dead_letter():
    with pytest.raises(ConfigError, match=r"after 2 lost workers \(SUTURE_LEASE_CRASH_LIMIT\).*takes 3 \(SUTURE_LEASE_SUSPECT\)"):
        Settings.read({"SUTURE_LEASE_CRASH_LIMIT": "2"})


def test_a_blocked_loop_must_be_forgiven_for_a_lease():
    with pytest.raises(ConfigError, match=r"blocked for 20 s \(SUTURE_LEASE_BLOCKED\).*lease of 30 s"):
        Settings.read({"SUTURE_LEASE_BLOCKED": "20"})


def test_a_lease_must_hold_three_heartbeats():
    with pytest.raises(ConfigError, match=r"three heartbeats of 10 s \(SUTURE_LEASE_HEARTBEAT\).*lease of 20 s \(SUTURE_LEASE_DURATION\)"):
        Settings.read({"SUTURE_LEASE_DURATION": "20"})
    Settings.read({"SUTURE_LEASE_DURATION": "20", "SUTURE_LEASE_HEARTBEAT": "5"})


def test_a_recording_needs_a_folder():
    with pytest.raises(ConfigError, match="SUTURE_EVIDENCE_RECORDING names no folder"):
        Settings.read({"SUTURE_EVIDENCE_SOURCE": "recording"})


def test_a_github_repository_is_named_by_owner_and_name():
    with pytest.raises(ConfigError, match="SUTURE_REPOSITORY_URL must be owner/name"):
        Settings.read({"SUTURE_REPOSITORY_KIND": "github", "SUTURE_REPOSITORY_URL": "https://github.example/shop/web"})


def test_a_secret_can_stand_in_a_file(tmp_path: Path):
    (tmp_path / "url").write_text("postgresql://db/suture\n")
    read = Settings.read({"SUTURE_DATABASE_URL_FILE": str(tmp_path / "url")})
    assert read.database.url.get_secret_value() == "postgresql://db/suture"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=rf"SUTURE_DATABASE_URL_FILE names {tmp_path}/none, which cannot be read: No such file"):
        Settings.read({"SUTURE_DATABASE_URL_FILE": str(tmp_path / "none")})
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not text"):
        Settings.read({"SUTURE_DATABASE_URL_FILE": str(tmp_path / "bytes")})


def test_a_value_and_a_file_for_the_same_setting_are_one_too_many(tmp_path: Path):
    with pytest.raises(ConfigError, match="SUTURE_API_TOKENS and SUTURE_API_TOKENS_FILE are both set"):
        Settings.read({"SUTURE_API_TOKENS": "a=b", "SUTURE_API_TOKENS_FILE": str(tmp_path)})


@pytest.mark.parametrize("name", [name for name, field in fields(Settings) if secret(field)])
def test_a_secret_is_in_no_repr_dump_or_error(name: str):
    value = "postgresql://u:hunter2@db" if "DATABASE" in name else "ops=hunter2"
    read = Settings.read({name: value})
    assert "hunter2" not in f"{read!r} {read} {read.model_dump()} {read.model_dump_json()}"
    with pytest.raises(ConfigError) as told:
        Settings.read({name: value, "SUTURE_LEASE_DURATION": "1", "SUTURE_LOG_LEVEL": "loud"})
    assert "hunter2" not in f"{told.value!r}"
    assert told.value.__cause__ is None


def test_an_address_with_a_wrong_scheme_is_refused_without_showing_its_password():
    with pytest.raises(ConfigError, match=r"SUTURE_DATABASE_URL: an address of Postgres starts with postgresql://") as told:
        Settings.read({"SUTURE_DATABASE_URL": "mysql://u:hunter2@db"})
    assert "hunter2" not in str(told.value)


def test_a_password_in_the_repositorys_address_is_refused_unseen():
    with pytest.raises(ConfigError, match="SUTURE_REPOSITORY_TOKEN keeps it secret") as told:
        Settings.read({"SUTURE_REPOSITORY_URL": "https://me:hunter2@git.example/shop"})
    assert "hunter2" not in str(told.value)


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Settings.read({}).log.level = "debug"


def test_the_readmes_table_is_that_of_the_code():
    readme = (ROOT / "README.md").read_text()
    assert replaced(readme, "settings", settings_table()) == readme, "run: make generate"


def test_the_table_explains_every_setting():
    rows = settings_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(names(Settings))
    assert all(len(row.split(" | ")[2]) > 20 for row in rows)
