"""The trial Postgres as a process: the embedded server on a kept folder, over TCP with a password. Not for production."""

from pathlib import Path

from suture.cli.postgres import NAME, EmbeddedPostgres
from suture.cli.processes import stop_signal
from suture.engine import Database
from suture.errors import ConfigError

_HOSTS = f"local all all peer map={NAME}\nhost {NAME} {NAME} all scram-sha-256\n"
"""Who may come in: our own user through the socket, and over the network one role to one database, with its password."""


async def serve(data: Path, *, listen: str = "", password_file: Path | None = None) -> None:
    """Run until SIGTERM.

    Raises: ConfigError, ToolMissing, DatabaseUnavailable.
    """
    stop = stop_signal()
    settings = _network(data, listen) if listen else {}
    password = _password(listen, password_file)
    async with EmbeddedPostgres.start(data, settings=settings) as server:
        if password:
            await _set_password(server.url, password)
        await stop.wait()


def _network(data: Path, listen: str) -> dict[str, str]:
    host, _, port = listen.rpartition(":")
    if not (host and port.isdecimal()):
        raise ConfigError(f"--listen {listen!r} is not HOST:PORT, such as 127.0.0.1:5432.")
    data.mkdir(parents=True, exist_ok=True, mode=0o711)
    hosts = data.absolute() / "hosts.conf"
    hosts.write_text(_HOSTS)
    hosts.chmod(0o644)  # no secret; the server may run as another user
    return {"listen_addresses": host, "port": port, "hba_file": str(hosts)}


def _password(listen: str, file: Path | None) -> str:
    if not listen:
        return ""
    if file is None:
        raise ConfigError("--listen opens the server to the network, and there is no password: name its file with --password-file.")
    try:
        password = file.read_text().strip()
    except OSError as error:
        raise ConfigError(f"--password-file {file} cannot be read: {error.strerror}.") from None
    if not password:
        raise ConfigError(f"--password-file {file} is empty.")
    return password


async def _set_password(url: str, password: str) -> None:
    async with Database.connect(url, packages=("suture.cli",)) as database, database.session() as session:
        await session.none("set_password", password)
        await session.none("apply_password")
