"""A watch that shows nothing any more is told from one that has nothing to show."""

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from suture.operator.signs import Sign, Signs


def test_a_watch_that_shows_what_a_comparison_finds_is_alive():
    sign = Sign()
    sign.saw_one("a", "9")
    sign.saw_one("b", "1000")
    for _ in range(3):
        sign.compare("a", "9")
        sign.compare("b", "999")  # a list may be older than the watch
    assert sign.unseen == set()


@pytest.mark.parametrize("version", ["10", "x"])
def test_one_that_misses_a_change_or_an_object_is_dead_until_it_shows_anything(version: str):
    sign = Sign()
    sign.saw_one("a", "9")
    sign.compare("a", version)
    sign.compare("new", "11")
    sign.compare("new", "12")
    assert sign.unseen == {"a", "new"}
    sign.saw()
    assert sign.unseen == set()
    sign.compare("new", "12")
    assert sign.unseen == {"new"}, "it showed another one"
    sign.saw_one("new", "12")
    sign.compare("new", "12")
    assert sign.unseen == set()


def test_what_is_gone_is_not_remembered():
    sign = Sign()
    for uid in ("a", "b"):
        sign.saw_one(uid, "1")
    sign.saw_end("a")
    sign.forget("b")
    assert sign.shown == {}


def test_its_time_is_that_of_the_last_sign_and_at_first_of_its_beginning():
    before = time.time()
    signs = Signs()
    sign = signs.of("pods", "suture")
    assert before <= sign.seen_at <= time.time()
    sign.seen_at = 0
    signs.of("pods", "suture").saw()
    assert signs.of("pods", "suture").seen_at >= before


def test_the_page_is_what_prometheus_reads():
    signs = Signs()
    signs.of("tasks", 'we"ird\\one\n').compare("a", "1")
    signs.of("pods", "suture").seen_at = 1.5
    page = signs.page({"suture_operator_ready": ("1: it is.", lambda: True)})
    families = {family.name: family for family in text_string_to_metric_families(page)}
    seen = {(name, *sorted(sample.labels.values())): sample.value for name, family in families.items() for sample in family.samples}
    assert seen["suture_operator_watch_last_event_timestamp_seconds", "pods", "suture"] == 1.5
    assert seen["suture_operator_watch_unseen", "tasks", 'we"ird\\one\n'] == 1
    assert seen["suture_operator_ready",] == 1
    assert {family.type for family in families.values()} == {"gauge"}
    assert all(family.documentation for family in families.values())
