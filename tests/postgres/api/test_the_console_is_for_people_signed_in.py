"""The console by HTTP: a cookie that only a token gives, forms that only our own pages can send, and text that stays text."""

import re
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import httpx
import pytest

from tests.postgres.api.gateway import PROPOSAL, Gateway, post, running, triggered

FORM = re.compile(r'name="form" value="([0-9a-f]{64})"')


class Person:
    """A browser without its screen: keeps the cookie, sends Origin with each form."""

    def __init__(self, gateway: Gateway) -> None:
        self.http = httpx.AsyncClient(base_url=gateway.url, trust_env=False, verify=False, headers={"Origin": gateway.url})

    async def sign_in(self, token: str) -> httpx.Response:
        return await self.http.post("/console/login", data={"token": token})

    async def send(self, page: str, address: str, **fields: str) -> httpx.Response:
        """Load a page and send a form of it."""
        form = FORM.search((await self.http.get(page)).text)
        assert form
        return await self.http.post(address, data={"form": form[1], **fields})


@pytest.fixture
async def person(gateway):
    """Somebody who may do everything."""
    found = Person(gateway)
    assert (await found.sign_in("token-of-anna-0123456789")).headers["location"] == "/console"
    yield found
    await found.http.aclose()


@pytest.fixture
async def stranger(gateway):
    found = Person(gateway)
    yield found
    await found.http.aclose()


async def test_signing_in_gives_a_cookie_that_scripts_and_other_sites_do_not_get(stranger):
    answer = await stranger.sign_in("token-of-anna-0123456789")

    [cookie] = SimpleCookie(answer.headers["set-cookie"]).values()
    assert answer.status_code == 303
    assert (cookie.key, cookie["httponly"], cookie["samesite"], cookie["path"]) == ("suture_session", True, "strict", "/console")
    assert "token-of-anna" not in cookie.value


async def test_behind_tls_the_cookie_never_travels_without_it(gateway, stranger):
    behind = gateway.url.replace("http://", "https://")

    [plain] = SimpleCookie((await stranger.sign_in("token-of-anna-0123456789")).headers["set-cookie"]).values()
    stranger.http.headers["Origin"] = behind
    [secure] = SimpleCookie((await stranger.sign_in("token-of-anna-0123456789")).headers["set-cookie"]).values()

    assert (plain["secure"], secure["secure"]) == ("", True)


@pytest.mark.parametrize("token", ["", "wrong", "token-of-anna", "\udcff"])
async def test_a_wrong_token_does_not_sign_in(stranger, token):
    answer = await stranger.http.post("/console/login", content=urlencode({"token": token}, errors="surrogateescape"))

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize("page", ["", "/dead-letters", "/deliveries", "/health", "/tasks/01930000-0000-7000-8000-000000000000"])
async def test_a_stranger_is_led_to_sign_in(stranger, page):
    answer = await stranger.http.get(f"/console{page}")

    assert (answer.status_code, answer.headers["location"]) == (303, "/console/login")


async def test_a_bearer_token_opens_no_page_and_a_cookie_no_door(gateway, person):
    assert (await gateway.by("anna").get("/console")).status_code == 303
    cookie = "; ".join(f"{name}={value}" for name, value in person.http.cookies.items())
    assert (await gateway.by(None).get("/tasks", headers={"Cookie": cookie})).status_code == 401


async def test_without_tokens_nobody_signs_in(database_url):
    async with running(database_url, tokens=None) as gateway:
        somebody = Person(gateway)
        answer = await somebody.sign_in("anything")
        await somebody.http.aclose()
        assert answer.status_code == 401
        assert "No token is configured" in answer.text


async def test_approving_on_the_page_is_the_answer_of_that_person(gateway, person):
    task = await gateway.asking()

    answer = await person.send(f"/console/tasks/{task.id}", f"/console/tasks/{task.id}/approve", digest=PROPOSAL.digest, reason="")

    stands = await gateway.records.approval(task.id)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/console/tasks/{task.id}")
    assert (stands.decision.verdict, stands.decision.by) == ("approved", "anna")
    assert "by anna" in (await person.http.get(answer.headers["location"])).text


async def test_rejecting_needs_a_reason_on_the_page_too(gateway, person):
    task = await gateway.asking()
    page, address = f"/console/tasks/{task.id}", f"/console/tasks/{task.id}/reject"

    without = await person.send(page, address, digest=PROPOSAL.digest, reason=" ")
    given = await person.send(page, address, digest=PROPOSAL.digest, reason="wrong tag")
    late = await person.http.post(address, data={"form": FORM.search(without.text)[1], "digest": PROPOSAL.digest, "reason": "again?"})

    assert (without.status_code, "a rejection needs a reason" in without.text) == (422, True)
    assert (given.status_code, late.status_code) == (303, 303)  # the same person repeats the same answer
    assert (await gateway.records.approval(task.id)).decision.reason == "wrong tag"


async def test_a_form_from_elsewhere_changes_nothing(gateway, person):
    task = await gateway.asking()
    address = f"/console/tasks/{task.id}/approve"
    form = FORM.search((await person.http.get("/console")).text)[1]
    good = {"form": form, "digest": PROPOSAL.digest, "reason": ""}

    answers = [
        await person.http.post(address, data=good, headers={"Origin": "https://evil.example"}),
        await person.http.post(address, data=good, headers={"Origin": "null"}),
        await person.http.post(address, data={**good, "form": "0" * 64}),
        await person.http.post(address, data={name: value for name, value in good.items() if name != "form"}),
        await person.http.post("/console/login", data={"token": "token-of-otto-0123456789"}, headers={"Origin": "https://evil.example"}),
    ]

    assert {answer.status_code for answer in answers} == {403}
    assert (await gateway.records.approval(task.id)).state == "pending"


async def test_who_may_only_look_sees_no_buttons_and_cannot_press_them(gateway):
    vera, task = Person(gateway), await gateway.asking()
    await vera.sign_in("token-of-vera-0123456789")

    page = (await vera.http.get(f"/console/tasks/{task.id}")).text
    answers = [
        await vera.send("/console", f"/console/tasks/{task.id}/{verb}", digest=PROPOSAL.digest, reason="x")
        for verb in ("approve", "cancel")
    ]

    assert "sign in as an approver" in page
    assert "<button>Cancel" not in page
    assert ">Approve<" not in page
    assert [answer.status_code for answer in answers] == [403, 403]
    await vera.http.aclose()


async def test_signing_out_ends_the_session_of_the_browser(person):
    answer = await person.send("/console", "/console/logout")

    assert answer.headers["location"] == "/console/login"
    assert (await person.http.get("/console")).status_code == 303


async def test_a_dead_letter_is_revived_and_a_task_cancelled_on_the_page(gateway, person):
    task = (await gateway.engine.enqueue("break", {"number": 1}, actor="test")).execution.id
    async with gateway.worker():
        await gateway.until(task, "error")

    revived = await person.send("/console/dead-letters", f"/console/tasks/{task}/retry", from_step="start")
    successor = revived.headers["location"].rsplit("/", 1)[1]
    cancelled = await person.send("/console", f"/console/tasks/{successor}/cancel", reason="not now")

    assert (revived.status_code, cancelled.status_code) == (303, 303)
    assert [move.actor for move in await gateway.engine.timeline(successor)] == ["anna", "anna"]
    assert "requeued" in (await person.http.get("/console/dead-letters")).text


async def test_hostile_text_is_shown_and_not_run(gateway, person):
    hostile = "Deployment/shop/web <script>alert(1)</script> \x1b[31mred\x1b[0m \u202e"
    await post(gateway.by(None), triggered(hostile, html_url="javascript:alert(1)"))
    asking = await gateway.asking()
    [task] = await gateway.engine.page(labels={"workload": "Deployment/shop/web"})

    pages = [(await person.http.get(f"/console{path}")).text for path in ("", f"/tasks/{task.id}", f"/tasks/{asking.id}", "/deliveries")]

    assert not [page for page in pages if "<script>alert" in page or "\x1b" in page or 'href="javascript' in page]
    assert "&lt;script&gt;alert(1)&lt;/script&gt; red ⟨U+202E⟩" in pages[1]
    assert "fatal &lt;script&gt;" in pages[2]  # of a cited log line


async def test_each_page_forbids_what_it_does_not_bring_itself(person):
    answer = await person.http.get("/console")

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "://" not in policy
    assert not re.findall(r'(?:src|href)="(?!/console)[^"]+"', answer.text.replace('href="#content"', ""))
    assert " style=" not in answer.text
    assert " onclick=" not in answer.text


async def test_an_error_is_a_page_here(person):
    missing = await person.http.get("/console/tasks/01930000-0000-7000-8000-000000000000")

    assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is no task" in missing.text


async def test_the_list_is_filtered_and_paged(gateway, person):
    for number in range(52):
        await gateway.engine.enqueue("order", {"number": number}, actor="test")

    first = (await person.http.get("/console?show=living")).text
    older = re.search(r'href="(/console\?show=living[^"]+)" rel="next"', first)[1].replace("&amp;", "&")

    assert first.count(">order</a>") == 50
    assert (await person.http.get(older)).text.count(">order</a>") == 2
    assert "No tasks yet" in (await person.http.get("/console?show=failed")).text
