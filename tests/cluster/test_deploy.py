"""What a person applies by hand is what a real API server takes: the broken apps break only when they run, and the Task fits its CRD."""

from pathlib import Path

import pytest

from tests.cluster.apiserver import ApiServer, eventually

ROOT = Path(__file__).resolve().parents[2]


def test_the_broken_apps_are_sound_to_the_api_server(apiserver: ApiServer) -> None:
    apiserver.kubectl("apply", "-f", ROOT / "deploy/broken/namespace.yaml")

    told = apiserver.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", ROOT / "deploy/broken")

    assert told.count("deployment.apps/") == 7  # six that fail, and the twin that shows the right tag


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/samples").glob("*.yaml")), ids=lambda path: path.name)
def test_a_sample_fits_its_kind(apiserver: ApiServer, path: Path) -> None:
    apiserver.kubectl("apply", "--server-side", "-f", ROOT / "crds")
    apiserver.kubectl("apply", "-f", ROOT / "deploy/broken/namespace.yaml")
    eventually("the kind is served", lambda: "Task" in apiserver.kubectl("api-resources", "--api-group=suture.dev", "--cached=false"))

    apiserver.kubectl("create", "--dry-run=server", "--validate=strict", "-f", path)
