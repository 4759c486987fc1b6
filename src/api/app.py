"""The application: all doors put together, with one way for errors to leave. Reads no settings; it receives values."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

from suture import __version__
from suture.api import approvals, console, health, listings, steering, stream, tasks, webhooks
from suture.api.authentication import Tokens
from suture.api.door import Door
from suture.api.gateway import Gateway, Viewer
from suture.api.problems import Problem, documented, response_of, response_of_http, response_of_validation
from suture.engine import Engine, Workflows
from suture.errors import SutureError
from suture.remediation.records import Records

BODY_LIMIT = 1 << 20  # bytes


def create_app(
    engine: Engine,
    records: Records,
    workflows: Workflows,
    *,
    tokens: Tokens,
    pagerduty_secrets: tuple[bytes, ...] = (),
    body_limit: int = BODY_LIMIT,
) -> FastAPI:
    """The gateway as an ASGI application. Without tokens every door is closed but the probes and signed webhooks."""
    gateway = Gateway(engine, records, workflows, tokens, pagerduty_secrets)
    # The framework's own pages of documentation load scripts from a foreign host, and would be open doors.
    app = FastAPI(title="Suture", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.gateway = gateway
    app.add_middleware(Door, body_limit=body_limit, traffic=gateway.traffic)
    for part in (stream, tasks, approvals, listings, steering, webhooks, health, console):
        app.include_router(part.router)
    _add_description(app)
    app.add_exception_handler(SutureError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_http)
    app.add_exception_handler(RequestValidationError, _refuse_parameter)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, SutureError)
    return console.refuse(request, error) if console.is_page(request) else response_of(error)


async def _refuse_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return response_of_http(error)


async def _refuse_parameter(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return response_of_validation(error)


def _add_description(app: FastAPI) -> None:
    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(_by: Viewer) -> JSONResponse:
        """The interface, described; behind a token like all else."""
        return JSONResponse(description(app))

    @app.get("/", include_in_schema=False)
    async def start() -> RedirectResponse:
        return RedirectResponse("/console")


def description(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the form of every problem."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes, summary="From a failing workload to one pull request.")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    # Parameters that do not fit are problems here, not the framework's own shape.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for operation in (op for path in document["paths"].values() for op in path.values()):
        if "422" in operation["responses"]:
            operation["responses"]["422"] = documented(422)[422]
    return document
