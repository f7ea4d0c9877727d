#!/usr/bin/env bash
# The local stack runs and every container of it is healthy: what `make up` does. Arguments: the compose command.
set -euo pipefail
cd "$(dirname "$0")/../.."

WITHIN_S=600

unready() { # services that have a health check and are not healthy yet, or that are not running
    local id state
    for id in $("$@" ps -q); do
        state=$(docker inspect --format '{{if .State.Health}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{.State.ExitCode}}{{end}}' "$id")
        case $state in healthy | exited0) ;; *) docker inspect --format "{{.Name}} ($state)" "$id" ;; esac
    done
}

[ -e .env ] || { cp .env.example .env && echo "Made .env from .env.example: it has the sample's passwords"; }
"$@" build
"$@" up -d
SECONDS=0
until [ -z "$(unready "$@")" ]; do
    if [ "$SECONDS" -gt "$WITHIN_S" ]; then
        printf 'not healthy after %s s: %s\n  remedy: %s logs SERVICE\n' "$WITHIN_S" "$(unready "$@" | xargs)" "$*" >&2
        exit 1
    fi
    sleep 2
done
echo "The stack is up, and every container is healthy"
