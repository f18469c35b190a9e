# The learner's image: JAX, all of seedzero, TensorBoard. From the repository's root:
#
#   docker build -f docker/learner.Dockerfile -t seedzero-learner .
#   docker run --rm -it --init -v seedzero-runs:/runs seedzero-learner train --preset=catch --run_dir=/runs/catch
#
# --build-arg EXTRAS=cuda|tpu,ray,...   JAX's device (default: CPU), Ray, and families of environments, as of a worker
# --build-arg BASE=IMAGE   any image with pip and Python 3.11 to 3.13, named `python`
# --secret id=pip_conf,src=FILE, --secret id=pip_ca,src=FILE   for a package mirror: pip's configuration and a
#                          certificate (in pip.conf: /run/secrets/pip_ca); no layer contains them
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
COPY requirements/learner.txt /opt/requirements/
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=pip_ca --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/seedzero \
    && pip --python=/opt/seedzero/bin/python install --no-deps --require-hashes -r /opt/requirements/learner.txt
ARG EXTRAS=""
COPY requirements/learner-*.txt requirements/worker-*.txt /opt/requirements/
RUN --mount=type=secret,id=pip_conf --mount=type=secret,id=pip_ca --mount=type=cache,target=/root/.cache/pip \
    cd /opt/requirements && for extra in $(echo "$EXTRAS" | tr , " "); do \
        lock=learner-$extra.txt; [ -f "$lock" ] || lock=worker-$extra.txt; \
        [ -f "$lock" ] || { echo "EXTRAS=$EXTRAS: unknown $extra; expected some of" *-*.txt >&2; exit 1; }; \
        pip --python=/opt/seedzero/bin/python install --no-deps --require-hashes -r "$lock" || exit 1; \
    done
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist \
    pip --python=/opt/seedzero/bin/python install --no-deps --no-index --no-cache-dir /dist/*.whl \
    && pip --python=/opt/seedzero/bin/python freeze --exclude=seedzero > /opt/seedzero/constraints.txt \
    && for name in seedzero ray; do \
        [ ! -e "/opt/seedzero/bin/$name" ] || ln -s "/opt/seedzero/bin/$name" /usr/local/bin/; \
    done \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /runs --no-log-init seedzero \
    && install --directory --owner=10001 --group=10001 --mode=1777 /runs

ARG BASE VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="seedzero-learner" \
      org.opencontainers.image.description="Learner of seedzero (distributed MuZero), with JAX; ${EXTRAS}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
# GKE mounts NVIDIA's driver where the loader does not look by itself.
ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/local/nvidia/lib
# XLA's compilation cache is beside the runs: a new container compiles nothing twice.
ENV PATH=/opt/seedzero/bin:$PATH HOME=/runs XDG_CACHE_HOME=/runs/.cache PYTHONDONTWRITEBYTECODE=1
# In an image made FROM this one, `pip install` installs beside seedzero and keeps the versions that seedzero has, and
# modules in /env are found.
ENV PIP_PYTHON=/opt/seedzero/bin/python PIP_CONSTRAINT=/opt/seedzero/constraints.txt PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONPATH=/env
WORKDIR /runs
USER 10001:10001
EXPOSE 7777
ENTRYPOINT ["seedzero"]
CMD ["train", "--help"]
