"""Mounted secrets: values in files that only this process reads, each bound to the places that it may be sent to.

`FOLDER/NAME/value` is the secret, `FOLDER/NAME/origins` lists where it may go, one `https://host[:port]` a line: as a Kubernetes Secret
with these two keys is mounted. Whoever may name a secret in a request can so not send it to a server of their own. Read at each call: a
rotation counts at once.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from suture.errors import AccessDenied, InvalidRequest, NotFound

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_SENDABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_LIMIT = 16 << 10  # bytes of a file: a header holds less


@dataclass(frozen=True, slots=True)
class Mounted:
    folder: Path | None

    def reveal(self, name: str, *, to: str) -> str:
        """The value of the secret `name`, for a request to the origin `to`.

        Raises: NotFound. AccessDenied when it may not go there. InvalidRequest for a value that no header can carry.
        """
        if self.folder is None:
            raise NotFound(f"There is no secret {name!r}: SUTURE_HTTP_SECRETS names no folder.")
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"The secret {name!r} cannot exist: names are of lower-case letters, digits, dots and hyphens.")
        if to not in self._text(name, "origins").lower().split():
            raise AccessDenied(f"The secret {name!r} may not be sent to {to}: its `origins` do not list it.")
        value = self._text(name, "value").strip()
        if not _SENDABLE.fullmatch(value):
            raise InvalidRequest(f"The secret {name!r} is empty, or holds what no header can carry: one line of ASCII is needed.")
        return value

    def _text(self, name: str, part: str) -> str:
        try:
            with Path(self.folder or "", name, part).open("rb") as file:
                return file.read(_LIMIT).decode()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not text"
            raise NotFound(f"The secret {name!r} cannot be read: its file `{part}`: {why}.") from None
