# The image of every process: `suture operator | worker | api | migrate | postgres`.
#
#     docker build -t suture .
#     buildah bud --build-arg BASE_IMAGE=registry.example/python:3.11 -t suture .
#
# BASE_IMAGE is any Debian or Ubuntu with Python 3.11 or newer at `python3`; it serves both stages, so that the virtual
# environment finds the interpreter that made it.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
RUN python3 -m venv /opt/suture
WORKDIR /source
# Dependencies first: they change less often than the code. The lock names all of them, each file with its hash; nothing else is taken.
COPY requirements-runtime.lock ./
RUN /opt/suture/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary=:all: -r requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/suture/bin/pip install --no-cache-dir --no-deps . \
    && /opt/suture/bin/pip check \
    && /opt/suture/bin/pip uninstall --yes setuptools pip

FROM ${BASE_IMAGE}
# git carries every change into a repository; it is the one program besides Python. A base that has it stays as it is.
RUN command -v git >/dev/null || { apt-get update && apt-get install --yes --no-install-recommends git ca-certificates \
    && rm -rf /var/lib/apt/lists/*; }
# 65532 is the usual `nonroot`; it has an entry in /etc/passwd because Postgres, used in trials, refuses a user without a name.
RUN groupadd --gid 65532 suture && useradd --uid 65532 --gid 65532 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin suture
# PYTHONSAFEPATH: a folder that happens to be the working directory never provides a module.
# PYTHONDONTWRITEBYTECODE and HOME: the root file system is read-only, /tmp is the one place to write.
ENV PATH=/opt/suture/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HOME=/tmp LANG=C.UTF-8
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["suture"]
CMD ["--help"]
# Last, for it is what changes.
COPY --from=build /opt/suture /opt/suture
