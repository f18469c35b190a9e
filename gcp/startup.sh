#!/usr/bin/env bash
# Startup script of gcp/train_atari_tpu_vm.sh's machines, run as root at every boot: starts the container described in the instance's
# metadata. seedzero-image: the image; seedzero-arguments: of seedzero.cli.gcp, one per line; seedzero-docker-flags: words for docker run.
set -euo pipefail

metadata() { # PATH
    curl --fail --silent --show-error --retry 5 --retry-connrefused --header 'Metadata-Flavor: Google' \
        "http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/$1"
}

image=$(metadata attributes/seedzero-image)
arguments=$(metadata attributes/seedzero-arguments)
mapfile -t arguments <<< "$arguments"
read -r -a docker_flags <<< "$(metadata attributes/seedzero-docker-flags || true)"
case " ${arguments[*]} " in
    # The hosts of a TPU slice call host 0 by the name in its certificate.
    *" --hosts="*)
        endpoints=$(metadata attributes/worker-network-endpoints)
        IFS=: read -r _ _ address <<< "${endpoints%%,*}"
        docker_flags+=("--add-host=seedzero-learner:$address")
        ;;
esac

# The root file system of a worker's machine is read-only, and a login in a temporary directory ends with this script.
DOCKER_CONFIG=$(mktemp -d)
export DOCKER_CONFIG
trap 'rm -rf "$DOCKER_CONFIG"' EXIT
pull() {
    metadata service-accounts/default/token | sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p' |
        docker login --username oauth2accesstoken --password-stdin "https://${image%%/*}" && docker pull --quiet "$image"
}
# Nothing runs this script again before the next boot, and the machine is billed meanwhile.
until pull; do
    echo "cannot pull $image, see above; trying again" >&2
    sleep "${POLL_SECONDS:-15}"
done

docker rm --force seedzero >/dev/null 2>&1 || true
# The project of the image: a TPU VM's own metadata may name another.
project=${image#*/}
# docker would kill after 10 s, and a machine that is taken away has 30.
docker run --detach --name seedzero --restart=on-failure --stop-timeout=60 --network=host ${docker_flags[@]+"${docker_flags[@]}"} \
    --log-driver=gcplogs --log-opt=gcp-project="${project%%/*}" --entrypoint=python "$image" -m seedzero.cli.gcp "${arguments[@]}"
