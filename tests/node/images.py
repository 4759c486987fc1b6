"""Images without a registry: a Debian base by debootstrap, the project's image by buildah, both as docker-archives.

    python -m tests.node.images        build what is missing or out of date, print the archive

Each is kept under ~/.cache/suture-rig/images and built again only when what it is made of changed. Needs root and, from Debian:
buildah debootstrap.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.node.machine import RigError, sh
from tests.node.programs import HOME, locked

ROOT = Path(__file__).resolve().parents[2]
IMAGES = HOME / "images"
IMAGE = "localhost/suture:test"
BASE = "localhost/suture-base:test"
PACKAGES = ("python3", "python3-venv", "ca-certificates", "git")
SUITE = "bookworm"
INPUTS = ("Dockerfile", ".dockerignore", "pyproject.toml", "requirements-runtime.lock", "README.md", "LICENSE", "src")
"""What the Dockerfile reads, from the root of the repository."""


def project(say: Callable[[str], None] = print) -> Path:
    """The project's image as a docker-archive, tagged IMAGE.

    Raises: RigError.
    """
    with locked(HOME / "images.lock"):
        base(say)
        archive = IMAGES / "suture.tar"
        return _made(archive, _digest(_inputs(), SUITE, *PACKAGES), lambda: _build_project(archive, say))


def base(say: Callable[[str], None] = print) -> Path:
    """A minimal Debian with Python and git as a docker-archive, tagged BASE; also the image of the tests' own pods."""
    archive = IMAGES / "base.tar"
    return _made(archive, _digest([], SUITE, *PACKAGES), lambda: _build_base(archive, say))


def layered(image: str, folders: Mapping[str, Path], say: Callable[[str], None] = print) -> Path:
    """The base with folders of ours laid into it, as a docker-archive tagged `image`."""
    with locked(HOME / "images.lock"):
        base(say)
        archive = IMAGES / f"{image.rpartition('/')[2].partition(':')[0]}.tar"
        files = [file for folder in folders.values() for file in _files(folder)]
        return _made(archive, _digest(files, image, SUITE, *PACKAGES), lambda: _build_layered(archive, image, folders))


def mirror(sources: Iterable[Path] = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))) -> str:
    """Address of the Debian mirror that this machine itself uses."""
    sources = list(sources)
    for path in sources:
        if path.exists() and (found := re.search(r"^(?:URIs:\s*|deb\s+(?:\[.*?\]\s*)?)(\S+)", path.read_text(), re.MULTILINE)):
            return found[1]
    raise LookupError(f"No Debian mirror is named in {', '.join(map(str, sources))}: the base image is made from the one that apt uses.")


def _made(archive: Path, digest: str, make: Callable[[], None]) -> Path:
    stamp = archive.with_suffix(".stamp")
    if not (archive.exists() and stamp.exists() and stamp.read_text() == digest):
        _need("buildah", "debootstrap")
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.unlink(missing_ok=True)
        make()
        stamp.write_text(digest)
    return archive


def _build_base(archive: Path, say: Callable[[str], None]) -> None:
    say("building the base image (once; about a minute)")
    context = IMAGES / "base"
    shutil.rmtree(context, ignore_errors=True)
    rootfs = context / "rootfs"
    rootfs.mkdir(parents=True)
    sh("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, rootfs, mirror())
    shutil.rmtree(rootfs / "var/cache/apt/archives", ignore_errors=True)
    shutil.rmtree(rootfs / "var/lib/apt/lists", ignore_errors=True)
    (context / "Dockerfile").write_text("FROM scratch\nCOPY rootfs /\n")
    _buildah("bud", "--isolation", "chroot", "-t", BASE, context)
    _buildah("push", BASE, f"docker-archive:{archive}:{BASE}")
    shutil.rmtree(context)


def _provide_base() -> None:
    """The storage may have lost the base that the archive still holds."""
    if BASE not in sh("buildah", *_storage(), "images", "--format", "{{.Name}}:{{.Tag}}").stdout.split():
        _buildah("pull", f"docker-archive:{IMAGES / 'base.tar'}")


def _build_layered(archive: Path, image: str, folders: Mapping[str, Path]) -> None:
    _provide_base()
    context = IMAGES / "layered"
    shutil.rmtree(context, ignore_errors=True)
    lines = [f"FROM {BASE}"]
    for number, (place, folder) in enumerate(folders.items()):
        shutil.copytree(folder, context / str(number), ignore=shutil.ignore_patterns("__pycache__"))
        lines.append(f"COPY {number} {place}")
    (context / "Dockerfile").write_text("\n".join(lines) + "\n")
    _buildah("bud", "--isolation", "chroot", "-t", image, context)
    _buildah("push", image, f"docker-archive:{archive}:{image}")
    shutil.rmtree(context)


def _build_project(archive: Path, say: Callable[[str], None]) -> None:
    say("building the project's image")
    _provide_base()
    _buildah(
        "bud", "--layers", "--isolation", "chroot", "--network", "host",
        "-v", "/etc/ssl/certs:/etc/ssl/certs:ro",  # the authorities that this machine trusts, its own proxy's among them
        "--build-arg", f"BASE_IMAGE={BASE}", "-t", IMAGE, ROOT,
    )  # fmt: skip
    _buildah("push", IMAGE, f"docker-archive:{archive}:{IMAGE}")
    _buildah("rmi", "--prune", check=False)  # the layers of the build before


def _buildah(*arguments: str | Path, check: bool = True) -> None:
    sh("buildah", *_storage(), *arguments, check=check)


def _storage() -> tuple[str | Path, ...]:
    return "--storage-driver", _driver(), "--root", IMAGES / f"storage-{_driver()}", "--runroot", IMAGES / "storage-run"


@cache
def _driver() -> str:
    """overlay where the file system allows it; vfs works everywhere, and copies every layer whole."""
    tried = sh(
        "buildah",
        "--storage-driver",
        "overlay",
        "--root",
        IMAGES / "storage-overlay",
        "--runroot",
        IMAGES / "storage-run",
        "info",
        check=False,
    )
    return "overlay" if tried.returncode == 0 else "vfs"


def _digest(files: Iterable[Path], *more: str) -> str:
    digest = hashlib.sha256("\n".join(more).encode())
    for file in files:
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _inputs() -> Iterator[Path]:
    for name in INPUTS:
        path = ROOT / name
        if not path.exists():
            raise RigError(f"the image cannot be built: {name} is missing in {ROOT}")
        yield from _files(path)


def _files(path: Path) -> Iterator[Path]:
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)


def _need(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        raise RigError(f"images cannot be built: {', '.join(missing)} not found; apt-get install {' '.join(missing)}")


if __name__ == "__main__":
    try:
        print(project(lambda line: print(line, file=sys.stderr)))
    except (RigError, subprocess.SubprocessError) as error:
        sys.exit(f"images: {error}")
