# The workers' image with DeepMind Lab, which no package index has: Lab is built here. From the repository's root:
#
#   docker build -f docker/worker-dmlab.Dockerfile -t seedzero-worker-dmlab .
#   docker run --rm -v "$PWD/token:/run/secrets/token:ro" seedzero-worker-dmlab \
#       worker --server=HOST:7777 --token_file=/run/secrets/token
#
# NOT BUILT YET: this follows Lab's documents (docs/users/build.md and python/pip_package/README.md of its repository) and
# was written where neither Debian's packages nor GitHub could be reached. What may need a hand: Bazel's version, Lab's
# build rules for a newer compiler, and NumPy 2.
#
# --build-arg BASE=IMAGE         Debian with a Python 3.11 named `python3`; Lab's build rules need its distutils
# --build-arg LAB_COMMIT=SHA     of github.com/google-deepmind/lab
# --build-arg BAZEL_VERSION=X    Lab has a WORKSPACE, so not above 7
# --secret id=pip_conf,src=FILE, --secret id=pip_ca,src=FILE   as in worker.Dockerfile
#
# psychlab's levels show images that Lab may not ship: data/brady_konkle_oliva2008/README.md in its repository says how to
# get them; mount them at /dataset.
ARG BASE=python:3.11-bookworm

# The Python that runs Lab must be the one that it is built with, and so must NumPy.
FROM ${BASE} AS lab
ARG PIP_CONFIG_FILE=/run/secrets/pip_conf PIP_DISABLE_PIP_VERSION_CHECK=1
ARG LAB_COMMIT=b1db91af5b4d2f3a24466f4632a3e5e1b0829cca BAZEL_VERSION=6.0.0
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential ca-certificates curl freeglut3-dev gettext git \
        libffi-dev libosmesa6-dev libsdl2-dev unzip zip \
    && rm -rf /var/lib/apt/lists/*
RUN curl -fsSL -o /usr/local/bin/bazel \
        "https://github.com/bazelbuild/bazel/releases/download/${BAZEL_VERSION}/bazel-${BAZEL_VERSION}-linux-x86_64" \
    && chmod 755 /usr/local/bin/bazel
COPY requirements/worker.txt /opt/requirements/
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=pip_ca --mount=type=cache,target=/root/.cache/pip \
    python3 -m pip install --no-deps --require-hashes -r /opt/requirements/worker.txt \
    && python3 -m pip install setuptools wheel
RUN git clone https://github.com/google-deepmind/lab.git /lab && git -C /lab checkout "$LAB_COMMIT"
WORKDIR /lab
RUN bazel build -c opt --python_version=PY3 //python/pip_package:build_pip_package \
    && PYTHON_BIN_PATH="$(command -v python3)" ./bazel-bin/python/pip_package/build_pip_package /dist

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
RUN apt-get update \
    && apt-get install -y --no-install-recommends freeglut3 libegl1 libosmesa6 libsdl2-2.0-0 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/worker.txt requirements/learner.txt /opt/requirements/
# tensorstore, by the learner's list: it reads a level cache in a bucket.
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=pip_ca --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/seedzero \
    && pip --python=/opt/seedzero/bin/python install --no-deps --require-hashes -r /opt/requirements/worker.txt \
    && awk '/^[a-z]/ { wanted = /^(tensorstore|ml-dtypes)==/ } wanted' /opt/requirements/learner.txt > /tmp/store.txt \
    && pip --python=/opt/seedzero/bin/python install --no-deps --require-hashes -r /tmp/store.txt \
    && rm /tmp/store.txt
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist --mount=type=bind,from=lab,source=/dist,target=/lab \
    pip --python=/opt/seedzero/bin/python install --no-deps --no-index --no-cache-dir /dist/*.whl /lab/*.whl \
    && ln -s /opt/seedzero/bin/seedzero /usr/local/bin/ \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --no-log-init seedzero

ARG BASE LAB_COMMIT VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="seedzero-worker-dmlab" \
      org.opencontainers.image.description="DeepMind Lab for a learner of seedzero" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-only" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
ENV PATH=/opt/seedzero/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["seedzero"]
CMD ["worker", "--help"]
