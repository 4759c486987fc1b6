"""How the processes speak: structured logs with context. Only here is a log line given its form.

Fields bound with `bound` (task, step, worker) appear on each line written inside, from whatever library the line comes.
"""

import logging
import sys
from typing import Literal

import structlog
from structlog.contextvars import bound_contextvars as bound
from structlog.typing import Processor

__all__ = ["bound", "configure"]


def configure(*, level: str, format: Literal["json", "console"]) -> None:  # noqa: A002 (the setting's name)
    """Send every log line, ours and the libraries', to standard error in one form."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer() if format == "json" else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line a request, with its address: noise, and it may name secrets
