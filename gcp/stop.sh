#!/usr/bin/env bash
# Ends the other scripts' resources, so that nothing is billed by the hour any more.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    cat <<'TEXT'
usage: gcp/stop.sh [--run=NAME] [--FLAG=VALUE ...]

Ends custom jobs of Vertex AI in --region, and in all zones TPUs, queued requests for them and groups of workers: those of one run, or
of all runs. Then it checks again, and fails if anything billed by the hour is left. With the last TPU goes the firewall rule for slices.

Learners save before they end, and the bucket stays: a restarted run resumes. --delete_storage also removes everything billed by the
month: the bucket with ALL CHECKPOINTS, the images in --region (others keep theirs), the secret.

EXAMPLES
  gcp/stop.sh --dry_run
  gcp/stop.sh --run=pong-1
  gcp/stop.sh --delete_storage
TEXT
}

run="" delete_storage=false
flag run NAME "only this run (default: all)"
switch delete_storage "delete the bucket with all checkpoints, the images and the secret too"
common_flags
parse_flags "$@"
[ -z "$run" ] || check_run
[ -z "$run" ] || [ "$delete_storage" = false ] || die "--delete_storage removes what all runs share; omit --run"

kinds="$thing_kinds worker-template"

# shellcheck disable=SC2086  # a list of words
wanted_things() { things $kinds | awk -F '\t' -v run="$run" 'run == "" || $4 == run'; }

end_thing() { # KIND NAME WHERE
    case "$1" in
        custom-job) cloud ai custom-jobs cancel "$2" --region="$3" ;;
        queued-tpu) cloud compute tpus queued-resources delete "$2" --zone="$3" --force ;;
        tpu-vm) cloud compute tpus tpu-vm delete "$2" --zone="$3" ;;
        worker-group) cloud compute instance-groups managed delete "$2" --zone="$3" ;;
        worker-template) cloud compute instance-templates delete "$2" ;;
        *) die "stop.sh does not know how to end a $1" ;;
    esac
}

# The rule opens all ports between a slice's hosts, and every TPU that is left may be a slice.
delete_host_rule() {
    local tpus
    is_there compute firewall-rules describe "$prefix-host" || return 0
    tpus=$(things queued-tpu tpu-vm) || tpus=unknown
    if [ -n "$tpus" ]; then
        say "the firewall rule $prefix-host stays, which costs nothing: other TPUs are left, or could not be listed"
    else
        cloud compute firewall-rules delete "$prefix-host"
    fi
}

delete_storage() {
    if [ "$dry_run" = true ] || is_there storage buckets describe "gs://$bucket"; then
        cloud storage rm --recursive "gs://$bucket"
    fi
    if [ "$dry_run" = true ] || is_there artifacts repositories describe "$repository" --location="$region"; then
        cloud artifacts repositories delete "$repository" --location="$region"
    fi
    if [ "$dry_run" = true ] || is_there secrets describe "$secret_name"; then
        cloud secrets delete "$secret_name"
    fi
}

if [ "$dry_run" = true ]; then
    echo "# a dry run calls nothing, so it does not know the live resources; these commands list them:"
    # shellcheck disable=SC2086  # a list of words
    show_listings $kinds
    echo "# and these end each of them (NAME, in its region or zone WHERE):"
    for kind in $kinds; do
        end_thing "$kind" NAME WHERE
    done
    echo "# and this the rule that opens ports between a slice's hosts, with the last TPU:"
    cloud compute firewall-rules delete "$prefix-host"
    [ "$delete_storage" = false ] || delete_storage
    exit 0
fi

failed=false
found=$(wanted_things) || failed=true
if [ -n "$found" ]; then
    say "this ends in project $project:"
    printf '%s\n' "$found" | awk -F '\t' '{ printf "  %-16s %-44s %-22s %s\n", $1, $2, $3, $5 }' >&2
elif [ "$failed" = false ]; then
    say "nothing runs${run:+ of run $run} in project $project (custom jobs: region $region)"
fi
if [ "$delete_storage" = true ] && [ "$failed" = true ]; then
    say "the storage stays: what could not be listed may still write into it"
    delete_storage=false
fi
[ "$delete_storage" = false ] || say "and DELETES gs://$bucket with all checkpoints, $images and the secret $secret_name"
if [ -n "$found" ] || [ "$delete_storage" = true ]; then
    confirm "Go on?"
fi

# Groups first: a template that a group uses cannot be deleted.
while IFS=$'\t' read -r kind name _ _ where _; do
    [ -n "$kind" ] || continue
    # A failure must not keep the other resources running; the final list reports it.
    end_thing "$kind" "$name" "$where" < /dev/null || say "$kind $name could not be ended; going on"
done <<< "$found"
[ "$delete_storage" = false ] || delete_storage

left=$(wanted_things | awk -F '\t' '$3 !~ /CANCELLING|DELETING/') || failed=true
if [ -n "$left" ]; then
    printf '%s\n' "$left" >&2
    say "error: the above is still there and may cost money; run gcp/stop.sh again, or end it at https://console.cloud.google.com"
    exit 1
fi
if [ "$failed" = true ]; then
    say "error: nothing else was found, but not everything could be listed; run gcp/stop.sh again"
    exit 1
fi
delete_host_rule
say "nothing is left that costs money by the hour (custom jobs: region $region)"
[ "$delete_storage" = true ] ||
    say "billed by the month: gs://$bucket (gcloud storage du --summarize gs://$bucket), images in $images, secret $secret_name"
