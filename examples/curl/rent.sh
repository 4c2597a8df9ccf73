#!/usr/bin/env bash
# Rent a GPU with curl, poll until it can be used, print how to reach it, and stop it.
#
#     GPUHERD_API_KEY=... ./rent.sh [NAME]
#
# Needs curl, and python3 to read JSON.
set -euo pipefail

url="${GPUHERD_URL:-http://127.0.0.1:8080}"
: "${GPUHERD_API_KEY:?set it to a key of your gpuherd server}"
name="${1:-example-curl}"
patience_s=1800

# The key goes in through a file descriptor: what stands in the command line, everybody on the machine can read.
api() {
    local method="$1" path="$2"
    shift 2
    curl --silent --show-error --fail-with-body --max-time 60 --request "$method" \
        --config <(printf 'header = "Authorization: Bearer %s"\n' "$GPUHERD_API_KEY") \
        "$@" "$url$path"
}

# field NAME: print one field of the JSON on stdin; an absent one is empty.
field() {
    python3 -c 'import json, sys; value = json.load(sys.stdin).get(sys.argv[1]); print("" if value is None else value)' "$1"
}

refused() {
    echo "gpuherd refused: $1" >&2
    exit 1
}

# until_is WHAT: poll until the instance is WHAT (ready, exited) and leave it in $instance.
until_is() {
    local what="$1" deadline=$((SECONDS + patience_s)) status usable
    while ((SECONDS < deadline)); do
        # The server answers as soon as it is so, or after 20 seconds with the state as it is.
        instance="$(api GET "/api/instances/$id?wait=$what&timeout=20")" || refused "$instance"
        status="$(field status <<<"$instance")"
        usable="$(field usable <<<"$instance")"
        echo "$status"
        if [[ "$status" == "$what" || ("$what" == ready && "$usable" == True) ]]; then
            return 0
        fi
        case "$status" in
            failed | exited | deleted)
                echo "it will not be $what: $(field statusReason <<<"$instance")" >&2
                return 1
                ;;
        esac
    done
    echo "not $what in time" >&2
    return 1
}

# The same Idempotency-Key with the same body is the same instance, so curl may repeat the request.
body="$(python3 -c 'import json, sys; print(json.dumps({
    "name": sys.argv[1], "productName": "RTX 4090 24GB", "templateId": "101", "maxHourlyPrice": 1.0}))' "$name")"
key="$(python3 -c 'import uuid; print(uuid.uuid4())')"
instance="$(api POST /api/instances --retry 3 --retry-connrefused \
    --header 'Content-Type: application/json' --header "Idempotency-Key: $key" --data "$body")" || refused "$instance"
id="$(field id <<<"$instance")"
echo "accepted as $id"

until_is ready
echo "ready: $(field productName <<<"$instance") in $(field region <<<"$instance") for \$$(field hourlyPrice <<<"$instance")/h"
python3 -c 'import json, sys
for way, address in json.load(sys.stdin)["connectionDetails"].items():
    if address:
        print(f"  {way}: {address}")' <<<"$instance"

# Here your work would be done.

stopped="$(api POST "/api/instances/$id/stop")" || refused "$stopped"
until_is exited
