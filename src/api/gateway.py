"""The gateway: what every door shares, and how a door asks for it and for who calls. Decides nothing itself."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from suture.api.authentication import Principal, Role, Tokens, identify
from suture.api.metrics import Traffic
from suture.engine import Engine, Workflows
from suture.errors import DatabaseUnavailable
from suture.remediation.records import Records

log = logging.getLogger(__name__)


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
    away: bool = False
    """Whether Postgres did not answer when it was asked last."""

    def lost(self, error: DatabaseUnavailable) -> None:
        """Postgres did not answer: said once, since a kubelet asks every few seconds."""
        if not self.away:
            log.warning("Postgres is away: %s", error)
        self.away = True

    def found(self) -> None:
        """It answered."""
        if self.away:
            log.info("Postgres is back")
        self.away = False


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
