# The thin image: environments, numpy and gRPC, no JAX. From the repository's root:
#
#   docker build -f docker/worker.Dockerfile -t seedzero-worker .
#   docker run --rm -v "$PWD/token:/run/secrets/token:ro" seedzero-worker \
#       worker --server=HOST:7777 --token_file=/run/secrets/token
#
# --build-arg BASE=IMAGE   any image with pip and Python 3.11 to 3.13, named `python`
# --build-arg EXTRAS=envpool,...   families of environments: any requirements/worker-*.txt
# --secret id=pip_conf,src=FILE, --secret id=pip_ca,src=FILE   for a package mirror: pip's configuration and a
#                          certificate (in pip.conf: /run/secrets/pip_ca); no layer contains them
#
# There is no HEALTHCHECK: a worker serves nothing. It ends when it fails, and the learner abandons a silent one
# (--transport.lease_seconds).
ARG BASE=python:3.11-slim

FROM ${BASE} AS wheel
ARG PIP_CONFIG_FILE=/run/secrets/pip_conf PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/build.txt /src/requirements/
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=pip_ca --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/build \
    && pip --python=/opt/build/bin/python install --no-deps --require-hashes -r /src/requirements/build.txt
WORKDIR /src
COPY . .
RUN pip --python=/opt/build/bin/python wheel --no-deps --no-build-isolation --wheel-dir=/dist .

FROM ${BASE}
ARG PIP_CONFIG_FILE=/run/secrets/pip_conf PIP_DISABLE_PIP_VERSION_CHECK=1
ARG EXTRAS=""
COPY requirements/worker*.txt /opt/requirements/
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=pip_ca --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/seedzero \
    && cd /opt/requirements && for extra in "" $(echo "$EXTRAS" | tr , " "); do \
        lock=worker${extra:+-$extra}.txt; \
        [ -f "$lock" ] || { echo "EXTRAS=$EXTRAS: unknown $extra; expected some of" worker-*.txt >&2; exit 1; }; \
        pip --python=/opt/seedzero/bin/python install --no-deps --require-hashes -r "$lock" || exit 1; \
    done
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist \
    pip --python=/opt/seedzero/bin/python install --no-deps --no-index --no-cache-dir /dist/*.whl \
    && pip --python=/opt/seedzero/bin/python freeze --exclude=seedzero > /opt/seedzero/constraints.txt \
    && ln -s /opt/seedzero/bin/seedzero /usr/local/bin/ \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --no-log-init seedzero

ARG BASE VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="seedzero-worker" \
      org.opencontainers.image.description="Environments for a learner of seedzero (distributed MuZero)" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
ENV PATH=/opt/seedzero/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
# In an image made FROM this one, `pip install` installs beside seedzero and keeps the versions that seedzero has, and
# modules in /env are found.
ENV PIP_PYTHON=/opt/seedzero/bin/python PIP_CONSTRAINT=/opt/seedzero/constraints.txt PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONPATH=/env
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["seedzero"]
CMD ["worker", "--help"]
