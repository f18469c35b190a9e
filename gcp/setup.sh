#!/usr/bin/env bash
# Prepares a Google Cloud project for the other scripts of this folder. A repeated call adds missing parts.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    cat <<'TEXT'
usage: gcp/setup.sh [--FLAG=VALUE ...]

Prepares a project, once: the required services, a bucket for runs, a repository for images, two service accounts with minimal rights,
a secret that authenticates learners and workers, and a firewall rule for workers on Compute Engine. Existing parts stay unchanged.

  seedzero-train   learners and workers: reads and writes the bucket, pulls images, reads the secret, writes logs
  seedzero-build   Cloud Build: reads the sources in the bucket, pushes images, writes logs

The secret holds a bearer token, and a certificate with its key for TLS, made on this machine by openssl. It is never printed and
never on a command line.

EXAMPLES
  gcp/setup.sh --dry_run
  gcp/setup.sh --project=my-project --region=europe-west4
  gcp/setup.sh --project=new-project --billing_account=012345-6789AB-CDEF01     # creates the project
TEXT
}

billing_account="" rotate_secret=false
flag billing_account ID "creates a missing project with this account"
flag network NAME "of Compute Engine and TPU VMs"
switch rotate_secret "make a new token and certificate; running jobs must be restarted"
common_flags
parse_flags "$@"

learner_port=7777 # as in seedzero.cli.gcp
services=(aiplatform artifactregistry cloudbuild compute iam logging secretmanager storage tpu)

add_secret_version() {
    if [ "$dry_run" = true ]; then
        echo "# token, certificate and key, made by openssl, go into the next command's standard input"
        cloud secrets versions add "$secret_name" --data-file=-
    else
        # Through a pipe only: neither a file nor a command line has it.
        local text
        text=$(new_secret) || die "openssl could not make a key and a certificate; see its message above"
        printf '%s' "$text" | cloud secrets versions add "$secret_name" --data-file=-
    fi
}

has_secret_version() {
    local versions
    [ "$dry_run" = false ] || return 1
    # A look-up that fails must not replace the secret of running jobs.
    versions=$(look secrets versions list "$secret_name" --filter=state=ENABLED --format='value(name)') || exit 1
    [ -n "$versions" ]
}

ensure_account() { # ADDRESS WHAT
    local name=${1%%@*}
    is_there iam service-accounts describe "$1" ||
        cloud iam service-accounts create "$name" --display-name="$2"
}

allow_in_project() { # ADDRESS ROLE
    cloud projects add-iam-policy-binding "$project" --member="serviceAccount:$1" --role="$2" --condition=None --format=none
}

allow_in_bucket() { # ADDRESS ROLE
    cloud storage buckets add-iam-policy-binding "gs://$bucket" --member="serviceAccount:$1" --role="$2" --format=none
}

allow_in_repository() { # ADDRESS ROLE
    cloud artifacts repositories add-iam-policy-binding "$repository" --location="$region" --member="serviceAccount:$1" \
        --role="$2" --format=none
}

plan_title
plan_line services "${services[*]}"
plan_line bucket "gs://$bucket, not public, without soft delete"
plan_line images "$images"
plan_line accounts "$train_account, $build_account"
plan_line secret "$secret_name"
plan_line firewall "$prefix-learner: TCP $learner_port within network $network, from workers to the learner"
plan_line cost "nothing by the hour; storage is billed by the month: checkpoints, images, one secret"
confirm "Go on?"
[ "$dry_run" = true ] || need openssl "it makes the token and the certificate"

say_what_may_help() {
    [ $? -ne 1 ] || say "not finished. New services and accounts take effect after a minute: run it again, it continues"
}
trap say_what_may_help EXIT

# A missing and an invisible project give the same answer.
if [ "$dry_run" = true ] || ! look projects describe "$project" --format=none >/dev/null 2>&1; then
    if [ -n "$billing_account" ]; then
        cloud projects create "$project"
        cloud billing projects link "$project" --billing-account="$billing_account"
    elif [ "$dry_run" = false ]; then
        die "project $project does not exist, or you may not see it (gcloud auth list); --billing_account=ID creates it (gcloud billing accounts list)"
    fi
fi

cloud services enable "${services[@]/%/.googleapis.com}"

is_there storage buckets describe "gs://$bucket" ||
    # Checkpoints are replaced all the time: soft delete would keep, and bill, each of them for a week.
    cloud storage buckets create "gs://$bucket" --location="$region" --uniform-bucket-level-access --public-access-prevention \
        --soft-delete-duration=0

is_there artifacts repositories describe "$repository" --location="$region" ||
    cloud artifacts repositories create "$repository" --location="$region" --repository-format=docker \
        --description="images of seedzero"

ensure_account "$train_account" "seedzero: learners and workers"
ensure_account "$build_account" "seedzero: builds images"

is_there secrets describe "$secret_name" ||
    cloud secrets create "$secret_name" --replication-policy=automatic
if [ "$rotate_secret" = true ] || ! has_secret_version; then
    add_secret_version
fi

allow_in_bucket "$train_account" roles/storage.objectUser
allow_in_repository "$train_account" roles/artifactregistry.reader
cloud secrets add-iam-policy-binding "$secret_name" --member="serviceAccount:$train_account" \
    --role=roles/secretmanager.secretAccessor --format=none
allow_in_project "$train_account" roles/logging.logWriter

allow_in_bucket "$build_account" roles/storage.objectViewer
allow_in_repository "$build_account" roles/artifactregistry.writer
allow_in_project "$build_account" roles/logging.logWriter

ensure_firewall_rule "$prefix-learner" "tcp:$learner_port" "$prefix"

say "ready; next: gcp/train_cartpole.sh --project=$project --region=$region"
