"""Logs: read in bounded memory however much a container wrote, kept byte for byte, and asked for again where nothing was said yet."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from suture.clients.cluster import LOG_READ, LOG_TAIL, Cluster
from suture.clients.cluster_reading import Collected

POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
    "spec": {"nodeName": "node1", "containers": [{"name": "app"}]},
    "status": {"containerStatuses": [{"name": "app", "restartCount": 1, "ready": False}]},
}


class Server:
    """An API server that knows one pod, with the logs that a test gives it."""

    def __init__(self) -> None:
        self.current: list[bytes] = []
        self.previous: list[bytes] = []
        self.sent = self.asked = 0
        self.later: list[bytes] = []
        """What the container says once it was asked for both its lives."""
        self.kubeconfig = Path()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/namespaces/shop/pods":
            return web.json_response({"metadata": {}, "items": [POD]})
        if request.path != "/api/v1/namespaces/shop/pods/web/log":
            return web.json_response({"message": "not served here"}, status=404)
        response = web.StreamResponse()
        await response.prepare(request)
        self.asked += 1
        for chunk in self.previous if request.query["previous"] == "true" else self.current:
            await response.write(chunk)
            self.sent += len(chunk)
        if self.asked == 2 and self.later:
            self.current = self.later
        return response


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server()
    application = web.Application()
    application.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.kubeconfig = tmp_path / "kubeconfig"
    host, port = runner.addresses[0][:2]
    server.kubeconfig.write_text(
        f"clusters: [{{name: a, cluster: {{server: 'http://{host}:{port}'}}}}]\nusers: [{{name: a, user: {{token: none}}}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\nkind: Config\napiVersion: v1\n"
    )
    yield server
    await runner.cleanup()


async def collected(server: Server) -> Collected:
    async with await Cluster.connect(server.kubeconfig, pause=timedelta(0)) as cluster:
        return await cluster.collect("shop", "Pod", "web")


async def test_a_short_log_is_kept_whole_with_the_bytes_that_are_no_text(server: Server) -> None:
    server.current, server.previous = [b"started\n", b"\xff\xfe\x00 raw\n"], [b"killed\n"]

    logs = {log.previous: log.content for log in (await collected(server)).logs}

    assert logs == {False: b"started\n\xff\xfe\x00 raw\n", True: b"killed\n"}


async def test_of_a_long_log_the_last_whole_lines_are_kept(server: Server) -> None:
    lines = [b"line %07d\n" % number for number in range(100_000)]
    server.current = [b"".join(lines[at : at + 5_000]) for at in range(0, len(lines), 5_000)]

    kept = next(log.content for log in (await collected(server)).logs if not log.previous)

    assert LOG_TAIL - len(lines[0]) <= len(kept) <= LOG_TAIL
    assert kept == b"".join(lines)[-len(kept) :]
    assert kept.startswith(b"line ")


async def test_a_log_without_end_is_left_in_time(server: Server) -> None:
    server.current = [b"x" * (1 << 20)] * 200

    kept = next(log.content for log in (await collected(server)).logs if not log.previous)

    assert len(kept) <= LOG_TAIL
    assert server.sent < 3 * LOG_READ


async def test_a_container_that_was_just_started_again_is_asked_once_more(server: Server) -> None:
    server.previous = [b"unable to retrieve container logs for containerd://f010098b4"]
    server.later = [b"fatal: REGION is not set\n"]

    logs = {log.previous: log.content for log in (await collected(server)).logs}

    assert logs[False] == b"fatal: REGION is not set\n"
    assert server.asked == 4


async def test_one_that_was_heard_is_not_asked_twice(server: Server) -> None:
    server.previous = [b"killed\n"]

    await collected(server)

    assert server.asked == 2
