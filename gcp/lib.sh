# shellcheck shell=bash
# Sourced by the scripts of this folder: flags, the plan with its cost estimate, confirmation, and common resources.
#
# A script declares its flags (`flag`, `switch`), defines describe (the text of --help), and calls parse_flags "$@". Then `project`,
# `region`, `bucket` and the script's own flags are set. Commands with side effects go through `run`, so that --dry_run prints them
# instead. A dry run's standard output is a script; messages for people go to standard error. Works in the bash 3.2 of macOS too.

# Ranges such as [a-z] and decimal points then mean the same everywhere.
export LC_ALL=C

script=$(basename "$0")
folder="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
root=$(dirname "$folder")

secret_name=seedzero-fleet
repository=seedzero
# The machines' tag in the firewall rule, and the prefix of every billed resource's name.
prefix=seedzero

say() { echo "$script: $*" >&2; }
die() { say "error: $*"; exit 2; }

# --- flags ---------------------------------------------------------------------------------------------------------------------------

flag_names=()
flag_placeholders=() # empty: a switch
flag_helps=()
takes_word="" # a flag whose value may stand without --NAME=, once
takes_settings=false # true: settings of `seedzero train` may follow --
settings=()

flag() { # NAME PLACEHOLDER HELP: --NAME=VALUE sets the variable NAME; its current value is the default
    flag_names+=("$1")
    flag_placeholders+=("$2")
    flag_helps+=("$3${!1:+ (default: ${!1})}")
}

switch() { # NAME HELP: --NAME sets the variable NAME to true
    flag_names+=("$1")
    flag_placeholders+=("")
    flag_helps+=("$2")
    printf -v "$1" false
}

project="" region=us-central1 bucket="" dry_run=false yes=false
common_flags() {
    flag project ID "Google Cloud project (default: gcloud's current one)"
    flag region NAME "of machines, images and the bucket"
    flag bucket NAME "bucket of the runs (default: PROJECT-seedzero)"
    switch yes "go on without asking"
    switch dry_run "print the exact commands and request bodies, and call nothing"
}

parse_flags() {
    local argument name value index
    for argument in "$@"; do
        case "$argument" in
            *[[:cntrl:]]*) die "a line break or another control character in $(printf '%q' "$argument")" ;;
        esac
    done
    while [ $# -gt 0 ]; do
        argument=$1
        shift
        case "$argument" in
            -h | --help) usage; exit 0 ;;
            --)
                [ "$takes_settings" = true ] || die "$script takes no settings of seedzero train after --"
                # shellcheck disable=SC2034  # the scripts read it
                settings=("$@")
                break
                ;;
            --*) ;;
            [!-]*)
                [ -n "$takes_word" ] && [ -z "${!takes_word}" ] ||
                    die "unexpected word '$argument'; flags are --NAME=VALUE, and $script --help lists them"
                printf -v "$takes_word" '%s' "$argument"
                continue
                ;;
            *) die "unexpected word '$argument'; flags are --NAME=VALUE, and $script --help lists them" ;;
        esac
        name=${argument#--}
        name=${name%%=*}
        index=$(index_of "$name" ${flag_names[@]+"${flag_names[@]}"}) || unknown_flag "$argument" "$name"
        if [ -z "${flag_placeholders[$index]}" ]; then
            [ "$argument" = "--$name" ] || die "$argument: --$name takes no value"
            printf -v "$name" true
            continue
        fi
        if [ "$argument" != "--$name" ]; then
            value=${argument#*=}
        elif [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then
            value=$1
            shift
        else
            value=""
        fi
        [ -n "$value" ] || die "--$name has no value; write --$name=${flag_placeholders[$index]}"
        printf -v "$name" '%s' "$value"
    done
    resolve_common
}

index_of() { # WORD WORDS...: prints the position of WORD among WORDS
    local wanted=$1 position=0 word
    shift
    for word in "$@"; do
        if [ "$word" = "$wanted" ]; then
            echo "$position"
            return 0
        fi
        position=$((position + 1))
    done
    return 1
}

unknown_flag() { # ARGUMENT NAME
    local hint
    hint=$(nearest "$2" "${flag_names[@]}")
    if [ -n "$hint" ]; then
        die "unknown flag $1; did you mean --$hint?"
    elif [ "$takes_settings" = true ]; then
        die "unknown flag $1; $script --help lists them, and settings of seedzero train come after --"
    fi
    die "unknown flag $1; $script --help lists them"
}

nearest() { # WORD WORDS...: prints the word with the fewest edits, if they are few
    printf '%s\n' "$@" | awk '
        function smallest(a, b, c) { return a < b ? (a < c ? a : c) : (b < c ? b : c) }
        function edits(a, b,    i, j, table) {
            for (i = 0; i <= length(a); i++) table[i, 0] = i
            for (j = 0; j <= length(b); j++) table[0, j] = j
            for (i = 1; i <= length(a); i++)
                for (j = 1; j <= length(b); j++)
                    table[i, j] = smallest(table[i - 1, j] + 1, table[i, j - 1] + 1,
                                           table[i - 1, j - 1] + (substr(a, i, 1) != substr(b, j, 1)))
            return table[length(a), length(b)]
        }
        NR == 1 { wanted = $0; least = 1 + int(length(wanted) / 3); next }
        { distance = edits(wanted, $0); if (distance <= least) { least = distance - 1; found = $0 } }
        END { print found }'
}

usage() {
    local index left
    describe
    echo
    echo "FLAGS"
    for index in "${!flag_names[@]}"; do
        left="--${flag_names[$index]}${flag_placeholders[$index]:+=${flag_placeholders[$index]}}"
        printf '  %-26s %s\n' "$left" "${flag_helps[$index]}"
    done
}

# shellcheck disable=SC2034  # the scripts read what it sets
resolve_common() {
    [ -n "$project" ] || project=$(gcloud config get-value project 2>/dev/null) || project=""
    case "${project##*:}" in # old ones have a domain before a colon
        "" | "(unset)") die "no project; give --project=ID, or set one: gcloud config set project ID" ;;
        *[!a-z0-9-]* | [!a-z]* | *- | ? | ?? | ??? | ???? | ?????) die "--project=$project: expected a project's ID, as my-project-123" ;;
    esac
    [ "$dry_run" = true ] || need gcloud "see https://cloud.google.com/sdk/docs/install"
    bucket=${bucket:-$project-seedzero}
    bucket=${bucket#gs://}
    train_account=seedzero-train@$project.iam.gserviceaccount.com
    build_account=seedzero-build@$project.iam.gserviceaccount.com
    secret=projects/$project/secrets/$secret_name/versions/latest
    images=$region-docker.pkg.dev/$project/$repository
}

need() { # PROGRAM HINT
    command -v "$1" >/dev/null 2>&1 || die "$1 is not on the PATH; $2"
}

check_choice() { # FLAG CHOICES...: refuses other values of the flag
    local name=$1 hint
    shift
    index_of "${!name}" "$@" >/dev/null && return
    hint=$(nearest "${!name}" "$@")
    die "--$name=${!name}: ${hint:+did you mean $hint? }choose one of: $*"
}

check_count() { # FLAG SMALLEST
    case "${!1}" in
        *[!0-9]* | "" | ?????????*) die "--$1=${!1}: expected a whole number" ;;
    esac
    printf -v "$1" '%d' "$((10#${!1}))" # JSON knows no 08
    [ "${!1}" -ge "$2" ] || die "--$1=${!1}: expected at least $2"
}

# --- commands ------------------------------------------------------------------------------------------------------------------------

quoted() { # WORDS...: prints them as one line, quoted for a shell
    local word line=""
    for word in "$@"; do
        case "$word" in
            *[!A-Za-z0-9_./:=,@%+-]* | "") word="'$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'" ;;
        esac
        line="$line${line:+ }$word"
    done
    printf '%s\n' "$line"
}

run() { # COMMAND...: prints it; runs it, unless this is a dry run
    if [ "$dry_run" = true ]; then
        quoted "$@"
    else
        echo "+ $(quoted "$@")" >&2
        "$@"
    fi
}

cloud() { # ARGUMENTS of gcloud with side effects; call it after `confirm`
    run gcloud "$@" --project="$project" --quiet
}

look() { # ARGUMENTS of gcloud without side effects; not for dry runs
    gcloud "$@" --project="$project" --quiet --verbosity=error
}

is_there() { # ARGUMENTS of gcloud describe: whether the resource exists; in a dry run nothing exists
    local error
    [ "$dry_run" = false ] || return 1
    if error=$(look "$@" --format=none 2>&1 >/dev/null); then
        return 0
    fi
    # Missing rights must not count as a missing resource.
    # No pipe: grep may leave before all is written, and with pipefail that would count as no match.
    grep -qiE 'not[ _]found|does not exist|could not be found' <<< "$error" && return 1
    say "$error"
    exit 1
}

write_body() { # FILE: writes standard input to the file; a dry run prints a command that writes it
    if [ "$dry_run" = true ]; then
        printf "cat > %s <<'BODY'\n%s\nBODY\n" "$(basename "$1")" "$(cat)"
    else
        cat > "$1"
    fi
}

body_path() { # FILE: path of a body: in a dry run beside its script, else in this script's temporary folder
    if [ "$dry_run" = true ]; then
        echo "$1"
        return
    fi
    echo "$scratch/$1"
}

make_scratch() {
    [ "$dry_run" = false ] || return 0
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
}

confirm() { # QUESTION: asks, and ends the script unless the answer is yes
    local answer=""
    if [ "$dry_run" = true ] || [ "$yes" = true ]; then
        return 0
    fi
    [ -t 0 ] || die "there is no terminal to ask on: --yes goes on without asking, --dry_run shows what would be done"
    read -r -p "$1 [y/N] " answer || answer=""
    case "$answer" in
        y | Y | yes) ;;
        *) say "nothing was changed"; exit 1 ;;
    esac
}

# --- the plan and its cost -----------------------------------------------------------------------------------------------------------

plan_total=0
plan_unknown=""

price_of() { # NAME compute|vertex: prints US dollars an hour, or nothing
    awk -F '\t' -v name="$1" -v column="$2" '
        !/^#/ && $1 == name { price = column == "vertex" ? $3 : $2; if (price != "-") print price }' "$folder/prices.tsv"
}

plan_machines() { # LABEL COUNT PLACE SPOT NAMES...: a line for COUNT machines; NAMES are a machine's parts in prices.tsv
    local label=$1 count=$2 place=$3 spot=$4 name price each=0 factor=1
    shift 4
    [ "$spot" = false ] || factor=0.5
    for name in "$@"; do
        price=$(price_of "$name" "$place")
        if [ -z "$price" ]; then
            plan_unknown="$plan_unknown $name"
            price=0
        fi
        each=$(awk -v a="$each" -v b="$price" -v f="$factor" 'BEGIN { print a + b * f }')
    done
    plan_total=$(awk -v a="$plan_total" -v b="$each" -v n="$count" 'BEGIN { print a + b * n }')
    printf '  %-10s %3d x %-36s %8s\n' "$label" "$count" "$(printf '%s ' "$@")$([ "$spot" = false ] || echo "(spot)")" \
        "$(awk -v b="$each" -v n="$count" 'BEGIN { printf "%.2f", b * n }')" >&2
}

plan_title() { echo "$script creates in project $project, region $region:" >&2; }

plan_line() { printf '  %-10s %s\n' "$1" "$2" >&2; } # LABEL TEXT

plan_sum() {
    printf '  %-10s %-42s %8s  %s\n' estimate "" "$(awk -v a="$plan_total" 'BEGIN { printf "%.2f", a }')" \
        "US dollars an hour, from the list prices in gcp/prices.tsv" >&2
    [ -z "$plan_unknown" ] || plan_line "" "and what these cost, which prices.tsv does not know:$plan_unknown"
}

# --- names ---------------------------------------------------------------------------------------------------------------------------

run="" # of the scripts with the flag
check_run() { # the run's name becomes part of labels and machine names
    case "$run" in
        [a-z]*) ;;
        *) die "--run=$run: a name begins with a small letter" ;;
    esac
    case "$run" in
        *[!a-z0-9-]* | *-) die "--run=$run: expected small letters, digits and dashes, and no dash at the end" ;;
    esac
    [ "${#run}" -le 40 ] || die "--run=$run: at most 40 characters"
}

# --- the secret ------------------------------------------------------------------------------------------------------------------------

new_secret() { # prints token, certificate and key as JSON
    local token key certificate
    token=$(openssl rand -hex 32) || return 1
    # A named curve, which gRPC requires; ten years, because trust in the certificate does not depend on its age.
    key=$(openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1) || return 1
    # Through a pipe: before bash 5.1, <<< would write the key to a file.
    certificate=$(printf '%s\n' "$key" | openssl req -x509 -new -key /dev/stdin -days 3650 -subj /CN=seedzero-learner \
        -addext subjectAltName=DNS:seedzero-learner) || return 1
    printf '{"token": "%s", "certificate": "%s", "key": "%s"}' "$token" "$(one_line "$certificate")" "$(one_line "$key")"
}

one_line() { printf '%s\n' "$1" | awk '{ printf "%s\\n", $0 }'; } # TEXT: its line breaks as JSON writes them

# --- images --------------------------------------------------------------------------------------------------------------------------

image_tag() { # the commit; uncommitted work on files of the images has a tag of its own, the same each time
    local commit changes
    if commit=$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null); then
        changes=$(changes_of_images)
        [ -z "$changes" ] || commit=$commit-$(printf '%s' "$changes" | git hash-object --stdin | cut -c 1-12)
        echo "$commit"
    else
        date -u +%Y%m%d%H%M%S
    fi
}

changes_of_images() { # what differs from the commit in docker/ and in what .dockerignore lets through
    local file paths=(docker)
    while IFS= read -r file; do
        case "$file" in !*) paths+=("${file#!}") ;; esac
    done < "$root/.dockerignore"
    git -C "$root" diff --binary HEAD -- "${paths[@]}"
    git -C "$root" ls-files --others --exclude-standard -z -- "${paths[@]}" | while IFS= read -r -d '' file; do
        echo "$file $(git -C "$root" hash-object -- "$file")"
    done
}

# --- resources -------------------------------------------------------------------------------------------------------------------------

# shellcheck disable=SC2034  # the scripts read it
thing_kinds="custom-job queued-tpu tpu-vm worker-group"

listing() { # KIND: sets `words` to gcloud's arguments to list it; columns NAME STATE RUN WHERE WHAT
    case "$1" in
        custom-job)
            words=(ai custom-jobs list --region="$region" --filter="labels.app=$prefix" --format="value(name.basename(), state,
                labels.run, name.segment(3), jobSpec.workerPoolSpecs[].machineSpec.machineType.list())")
            ;;
        queued-tpu)
            words=(compute tpus queued-resources list --zone=- --filter="name~/$prefix-" --format="value(name.basename(), state.state,
                name.basename(), name.segment(3), tpu.nodeSpec[].node.acceleratorType.list())")
            ;;
        tpu-vm)
            # A TPU of a queued request ends with its request.
            words=(compute tpus tpu-vm list --zone=- --filter="labels.app=$prefix AND NOT queuedResource:*"
                --format="value(name.basename(), state, labels.run, name.segment(3), acceleratorType)")
            ;;
        worker-group)
            words=(compute instance-groups managed list --filter="name~^$prefix-" --format="value(name,
                status.isStable.yesno(yes=STABLE, no=CHANGING), name, zone.basename(), targetSize)")
            ;;
        worker-template) # it costs nothing, but blocks the next run of this name
            words=(compute instance-templates list --filter="name~^$prefix-" --format="value(name,
                name.yesno(yes=FREE), name, name.yesno(yes=global), properties.machineType)")
            ;;
    esac
    words[${#words[@]}-1]=$(printf '%s' "${words[${#words[@]}-1]}" | tr '\n' ' ' | tr -s ' ')
}

things() { # KINDS...: prints KIND NAME STATE RUN WHERE WHAT, tab-separated, of all live resources; fails if a listing does
    local kind rows code=0
    for kind in "$@"; do
        listing "$kind"
        if ! rows=$(look "${words[@]}"); then
            say "$kind: gcloud's listing failed, see its message above; more of them may be there"
            code=1
            continue
        fi
        printf '%s\n' "$rows" | awk -F '\t' -v OFS='\t' -v kind="$kind" -v prefix="$prefix-" '
            NF == 0 || $2 ~ /SUCCEEDED|FAILED|CANCELLED|EXPIRED/ && kind == "custom-job" { next }
            {
                if ($3 == $1) sub("^" prefix, "", $3) # no label: the name has the run
                for (i = 1; i <= 5; i++) if ($i == "") $i = "-" # a shell reads two tabs as one
                print kind, $1, $2, $3, $4, $5
            }'
    done
    return "$code"
}

network=default # of the scripts with the flag
ensure_firewall_rule() { # NAME RULES TAG: between machines with the tag, within --network
    local its_network
    if is_there compute firewall-rules describe "$1"; then
        its_network=$(look compute firewall-rules describe "$1" --format='value(network.basename())')
        [ "$its_network" = "${network##*/}" ] ||
            die "the firewall rule $1 is for network $its_network, not $network; gcloud compute firewall-rules delete $1 removes it, then run this again"
    else
        cloud compute firewall-rules create "$1" --network="$network" --direction=INGRESS --action=ALLOW --rules="$2" \
            --source-tags="$3" --target-tags="$3"
    fi
}

show_listings() { # KINDS...: prints the commands of `things`
    local kind
    for kind in "$@"; do
        listing "$kind"
        quoted gcloud "${words[@]}" --project="$project" --quiet --verbosity=error
    done
}
