"""The console's doors: who comes in by cookie, reads rows and gets a page; or posts a form of ours and is sent back to a page.

Forms do what the API does, through the same functions. Pages are made in `pages` and `task_page`.
"""

import time
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated
from urllib.parse import parse_qs
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from suture.api import approvals
from suture.api.authentication import identify
from suture.api.bodies import fit
from suture.api.console import pages, session, task_page
from suture.api.console.session import COOKIE, LIFETIME, Visitor
from suture.api.gateway import Gateway, Here, gateway_of
from suture.api.health import look
from suture.api.problems import headers_of, problem_of
from suture.api.tasks import Cancellation, Revival, withdraw
from suture.engine.payload import admit
from suture.errors import AccessDenied, InvalidRequest, SutureError, Unauthenticated
from suture.remediation.incident import Decision

router = APIRouter(prefix="/console", include_in_schema=False)

PAGE = 50  # tasks on one page

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def is_page(request: Request) -> bool:
    """Whether a person at a browser waits for the answer."""
    return request.url.path == "/console" or request.url.path.startswith("/console/")


def refuse(request: Request, error: SutureError) -> Response:
    """An error as a page; who is not signed in is led to where one signs in."""
    if isinstance(error, Unauthenticated) and request.method == "GET":
        return RedirectResponse("/console/login", 303)
    visitor = _visitor(request, gateway_of(request))
    return _page(pages.problem(problem_of(error), visitor), error.http_status, headers_of(error))


async def signed_in(request: Request, gateway: Here) -> Visitor:
    """Raises: Unauthenticated."""
    visitor = _visitor(request, gateway)
    if visitor is None:
        raise Unauthenticated("Sign in first: your session is over, or there was none.")
    return visitor


Signed = Annotated[Visitor, Depends(signed_in)]


async def filled(request: Request, visitor: Signed) -> dict[str, str]:
    """The fields of a form that a page of this session sent.

    Raises: AccessDenied for a form from anywhere else.
    """
    fields = await _fields(request)
    if not session.is_form_of(visitor, fields.pop("form", "")):
        raise AccessDenied("This form is not of your session: load the page again, then send it.")
    return fields


Fields = Annotated[dict[str, str], Depends(filled)]


@router.get("/login")
async def login_page() -> Response:
    return _page(pages.sign_in())


@router.post("/login")
async def login(request: Request, gateway: Here) -> Response:
    fields = await _fields(request)
    try:
        # Typed into a form it is UTF-8; a header would have carried the same bytes as Latin-1.
        principal = identify(gateway.tokens, fields.get("token", "").strip().encode().decode("latin-1"))
    except Unauthenticated as error:
        return _page(pages.sign_in(error.message), error.http_status)
    answer = RedirectResponse("/console", 303)
    value = session.seal(gateway.tokens, principal, now=int(time.time()))
    # As the browser saw it: behind a proxy that ends TLS we only hear http.
    secure = request.headers.get("origin", "").startswith("https://")
    answer.set_cookie(COOKIE, value, max_age=LIFETIME, path="/console", httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
async def logout(_fields: Fields) -> Response:
    answer = RedirectResponse("/console/login", 303)
    answer.delete_cookie(COOKIE, path="/console")
    return answer


@router.get("")
async def home(visitor: Signed, gateway: Here, show: str = "all", before: UUID | None = None) -> Response:
    """What waits for a person, then the tasks, youngest first."""
    chosen = show if show in pages.FILTERS else "all"
    found = await gateway.engine.page(statuses=list(pages.FILTERS[chosen]) or None, before=before, limit=PAGE + 1)
    asked = await gateway.records.approvals(limit=200)
    following = f"/console?show={chosen}&before={found[PAGE - 1].id}" if len(found) > PAGE else None
    causes = {UUID(question.task_id): question.proposal.cause.code for question in reversed(asked)}
    now = datetime.now(UTC)
    pending = [question for question in asked if question.state == "pending" and question.expires_at > now]
    return _page(pages.home(visitor, found[:PAGE], pending, causes=causes, chosen=chosen, following=following, now=now))


@router.get("/tasks/{id}")
async def task(visitor: Signed, id: UUID, gateway: Here) -> Response:  # noqa: A002
    story = task_page.Story(
        execution=await gateway.engine.get(id),
        timeline=await gateway.engine.timeline(id),
        checkpoints=await gateway.engine.checkpoints(id),
        approval=await gateway.records.approval(id),
        changes=await gateway.records.pull_requests(id),
    )
    return _page(task_page.page(visitor, story, now=datetime.now(UTC)))


@router.post("/tasks/{id}/approve")
async def approve(visitor: Signed, fields: Fields, id: UUID, gateway: Here) -> Response:  # noqa: A002
    asked = fit(approvals.Consent, fields)
    return await _answered(visitor, gateway, id, Decision(verdict="approved", by=visitor.principal.name, **asked.model_dump()))


@router.post("/tasks/{id}/reject")
async def reject(visitor: Signed, fields: Fields, id: UUID, gateway: Here) -> Response:  # noqa: A002
    asked = fit(approvals.Refusal, fields)
    return await _answered(visitor, gateway, id, Decision(verdict="rejected", by=visitor.principal.name, **asked.model_dump()))


@router.post("/tasks/{id}/cancel")
async def cancel(visitor: Signed, fields: Fields, id: UUID, gateway: Here) -> Response:  # noqa: A002
    by = visitor.principal.demand("operator").name
    async with gateway.engine.transaction() as inside:
        await withdraw(gateway, inside, id, actor=by, reason=fit(Cancellation, fields).reason)
    return _back(id)


@router.post("/tasks/{id}/retry")
async def retry(visitor: Signed, fields: Fields, id: UUID, gateway: Here) -> Response:  # noqa: A002
    by = visitor.principal.demand("operator").name
    successor = await gateway.engine.requeue(id, actor=by, from_step=fit(Revival, fields).from_step)
    return _back(successor.id)


@router.get("/dead-letters")
async def dead_letters(visitor: Signed, gateway: Here) -> Response:
    return _page(pages.dead_letters(visitor, await gateway.engine.dead_letters(limit=200), now=datetime.now(UTC)))


@router.get("/deliveries")
async def deliveries(visitor: Signed, gateway: Here) -> Response:
    return _page(pages.deliveries(visitor, await gateway.records.deliveries(limit=200), now=datetime.now(UTC)))


@router.get("/health")
async def health(visitor: Signed, gateway: Here) -> Response:
    return _page(pages.health(visitor, await look(gateway)))


@router.get("/console.css")
async def stylesheet() -> Response:
    return _file("console.css", "text/css")


@router.get("/icon.svg")
async def icon() -> Response:
    return _file("icon.svg", "image/svg+xml")


@router.get("/console.js")
async def script() -> Response:
    return _file("console.js", "text/javascript")


async def _answered(visitor: Visitor, gateway: Gateway, task_id: UUID, decision: Decision) -> Response:
    visitor.principal.demand("approver")
    await approvals.answer(gateway, task_id, decision)
    return _back(task_id)


async def _fields(request: Request) -> dict[str, str]:
    """Raises: AccessDenied when another site sent the form. InvalidRequest."""
    headers = request.headers
    if not session.is_same_origin(headers.get("origin"), headers.get("sec-fetch-site"), headers.get("host")):
        raise AccessDenied("This form came from another site.")
    try:
        found = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise InvalidRequest("The form cannot be read.") from None
    fields = {name: values[-1] for name, values in found.items()}
    admit(fields, what="form")
    return fields


def _visitor(request: Request, gateway: Gateway) -> Visitor | None:
    cookie = request.cookies.get(COOKIE)
    return session.unseal(gateway.tokens, cookie, now=int(time.time())) if cookie else None


def _page(html: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return HTMLResponse(html, status, headers={"Content-Security-Policy": _POLICY, **(headers or {})})


def _back(task_id: UUID) -> Response:
    # 303: reloading the page does not send the form again.
    return RedirectResponse(f"/console/tasks/{task_id}", 303)


def _file(name: str, kind: str) -> Response:
    content = (files("suture.api.console") / name).read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "max-age=300"})
