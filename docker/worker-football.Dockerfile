# The workers' image with football from both sides (gfootball, which is built here) and with EnvPool's. From the
# repository's root:
#
#   docker build -f docker/worker-football.Dockerfile -t seedzero-worker-football .
#   docker run --rm -v "$PWD/token:/run/secrets/token:ro" seedzero-worker-football \
#       worker --server=HOST:7777 --token_file=/run/secrets/token
#
# NOT BUILT YET as an image: its commands built and ran gfootball on Debian 12 with Python 3.11 and NumPy 2.
#
# --build-arg BASE=IMAGE         Debian 12 with a Python 3.11 named `python3`, which Boost's package is for
# --secret id=pip_conf,src=FILE, --secret id=pip_ca,src=FILE   as in worker.Dockerfile
ARG BASE=python:3.11-bookworm

# gfootball's build asks for psutil before it compiles. gym 0.21 cannot be built, and 0.26 has another API.
FROM ${BASE} AS football
ARG PIP_CONFIG_FILE=/run/secrets/pip_conf PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential cmake libboost-filesystem-dev libboost-python-dev \
        libboost-system-dev libboost-thread-dev libegl1-mesa-dev libgl1-mesa-dev libsdl2-dev libsdl2-gfx-dev \
        libsdl2-image-dev libsdl2-ttf-dev \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=pip_ca --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/build && export PATH=/opt/build/bin:$PATH \
    && pip install "setuptools<80" wheel psutil==7.2.2 numpy==2.4.6 \
    && pip wheel --no-deps --no-build-isolation --no-binary=gfootball --wheel-dir=/dist gfootball==2.10.2 \
    && pip wheel --no-deps --wheel-dir=/dist gym==0.23.1 gym-notices==0.1.0 cloudpickle==3.1.3 absl-py==2.5.1 \
        six==1.17.0 opencv-python-headless==5.0.0.93 pygame==2.6.1

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
    && apt-get install -y --no-install-recommends libboost-filesystem1.74.0 libboost-python1.74.0 \
        libboost-system1.74.0 libboost-thread1.74.0 libegl1 libgl1 libsdl2-2.0-0 libsdl2-gfx-1.0-0 libsdl2-image-2.0-0 libsdl2-ttf-2.0-0 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/worker.txt requirements/worker-envpool.txt /opt/requirements/
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=pip_ca --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/seedzero \
    && pip --python=/opt/seedzero/bin/python install --no-deps --require-hashes -r /opt/requirements/worker.txt \
    && pip --python=/opt/seedzero/bin/python install --no-deps --require-hashes -r /opt/requirements/worker-envpool.txt
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist --mount=type=bind,from=football,source=/dist,target=/football \
    pip --python=/opt/seedzero/bin/python install --no-deps --no-index --no-cache-dir /dist/*.whl /football/*.whl \
    && ln -s /opt/seedzero/bin/seedzero /usr/local/bin/ \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --no-log-init seedzero

ARG BASE VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="seedzero-worker-football" \
      org.opencontainers.image.description="Football from both sides for a learner of seedzero" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
ENV PATH=/opt/seedzero/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["seedzero"]
CMD ["worker", "--help"]
