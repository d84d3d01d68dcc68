#!/bin/sh
# The API's whole use: sh examples/advice.sh REPO HARDWARE [bench.log]. ADVISOR_SERVICE names another service; with
# ADVISOR_TOKEN the advice is measured on its hosts. Needs awk, grep -o and curl 7.82 or newer.
set -eu
api=${ADVISOR_SERVICE:-http://127.0.0.1:8000}/v1 kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
call() { curl -sS --fail-with-body -D "$kept/head" -w '\n' -H 'Accept: text/plain, application/json;q=0.5' "$@"; }
header() { awk -v name="$1:" 'tolower($1) == name { print $2 }' "$kept/head" | tr -d '\r'; }
quoted() { awk 'BEGIN { printf "\"" } { gsub(/[\\"]/, "\\\\&"); gsub(/[[:cntrl:]]/, " "); printf "%s\\n", $0 } END { printf "\"" }'; }
first() { grep -oE "\"$1\":\"([^\"\\\\]|\\\\.)*\"" "$kept/json" | head -n 1 | cut -d: -f2-; }
rig=$(printf '%s' "$2" | quoted)
call "$api/hardware/parse" --json "{\"text\": $rig}"                               # what is understood of it
call "$api/advice" --json "{\"repo\": \"$1\", \"hardware\": $rig}" >"$kept/text"      # 200; 202 where it takes a while
advice=$api/advice/$(header location | sed 's|.*/||')
while wait=$(header retry-after) && [ "$wait" ]; do sleep "$wait" && call "$advice?wait=30" >"$kept/text"; done
call "$advice?format=json" >"$kept/json" && cat "$kept/text"
[ ! "$(first server)" ] || call "$api/check" --json "{\"command\": $(first server), \"engine\": $(first engine), \"repo\": \"$1\", \"hardware\": $rig}"
call "$api/leaderboard?limit=10"
[ ! "${3-}" ] || { printf '{"hardware": %s, "text": ' "$rig" && quoted <"$3" && echo '}'; } | call "$api/results" --json @-
[ ! "${ADVISOR_TOKEN-}" ] || printf 'Authorization: Bearer %s' "$ADVISOR_TOKEN" | call "$advice/validations" -H @- --json '{}'
