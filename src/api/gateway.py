"""The gateway: what every door shares, and how a door asks for it and for who calls. Decides nothing itself."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from suture.api.authentication import Principal, Role, Tokens, identify
from suture.api.metrics import Traffic
from suture.engine import Engine, Workflows
from suture.remediation.records import Records


@dataclass(slots=True)
class Gateway:
    engine: Engine
    records: Records
    workflows: Workflows
    tokens: Tokens
    pagerduty_secrets: tuple[bytes, ...]
    traffic: Traffic = field(default_factory=Traffic)
    draining: bool = False
    """After SIGTERM: requests are still served, but readiness sends new ones elsewhere."""


def gateway_of(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


Here = Annotated[Gateway, Depends(gateway_of)]

_BEARER = HTTPBearer(auto_error=False, description="A token of SUTURE_API_TOKENS.")


def require(role: Role) -> Callable[..., Awaitable[Principal]]:
    """A dependency that yields the caller.

    Raises: Unauthenticated; AccessDenied that names the role needed.
    """

    async def caller(gateway: Here, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> Principal:
        return identify(gateway.tokens, given.credentials if given else None).demand(role)

    return caller


Viewer = Annotated[Principal, Depends(require("viewer"))]
Operator = Annotated[Principal, Depends(require("operator"))]
Approver = Annotated[Principal, Depends(require("approver"))]
