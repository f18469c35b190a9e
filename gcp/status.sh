#!/usr/bin/env bash
# Shows the running, billed resources on Google Cloud.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    cat <<'TEXT'
usage: gcp/status.sh [--FLAG=VALUE ...]

Shows the resources of this folder's scripts that are billed by the hour: custom jobs of Vertex AI in --region, and in all zones TPUs,
queued requests for them, and groups of workers. The run directory has the training's progress:

  seedzero status --run_dir=gs://BUCKET/runs/RUN

EXAMPLES
  gcp/status.sh --project=my-project --region=us-central1
TEXT
}

common_flags
parse_flags "$@"

if [ "$dry_run" = true ]; then
    # shellcheck disable=SC2086  # a list of words
    show_listings $thing_kinds
    exit 0
fi

code=0
# shellcheck disable=SC2086  # a list of words
found=$(things $thing_kinds) || code=1
if [ -z "$found" ]; then
    [ "$code" -eq 0 ] || exit "$code"
    echo "nothing runs in project $project (custom jobs: region $region)"
    exit 0
fi
{
    echo $'KIND\tNAME\tSTATE\tRUN\tWHERE\tWHAT'
    echo "$found"
} | awk -F '\t' '{ printf "%-16s %-44s %-22s %-32s %-16s %s\n", $1, $2, $3, $4, $5, $6 }'
echo
echo "gcp/stop.sh ends them; the log of a job: gcloud ai custom-jobs stream-logs NAME --project=$project --region=$region"
exit "$code"
