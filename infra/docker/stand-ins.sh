#!/usr/bin/env bash
# Stand-ins for the stack's base images, from Debian's packages: for machines that reach no image registry. As root, with
# debootstrap and a Docker engine. Certificates that this machine trusts beside Debian's own are trusted in them too.
# MIRROR names another Debian mirror. Grafana is no package of Debian's: the stack runs without it.
set -euo pipefail
cd "$(dirname "$0")/stand-ins"

MIRROR=${MIRROR:-http://deb.debian.org/debian}
CERTIFICATES=/usr/local/share/ca-certificates

debian() { # bookworm with Python, as an image
    local root
    root=$(mktemp -d)
    trap 'rm -rf "$root"' RETURN
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root" "$MIRROR" >&2
    cp "$CERTIFICATES"/*.crt "$root$CERTIFICATES/" 2>/dev/null || true
    chroot "$root" update-ca-certificates >&2
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    tar -C "$root" -c . | docker import --change 'CMD ["bash"]' - tidegate/stand-in-debian
}

docker image inspect tidegate/stand-in-debian >/dev/null 2>&1 || debian
for name in postgres prometheus; do
    docker build --quiet --file "$name.Dockerfile" --tag "tidegate/stand-in-$name" .
done
cat <<'END'
In .env:
  COMPOSE_PROFILES=
  PYTHON_IMAGE=tidegate/stand-in-debian
  POSTGRES_IMAGE=tidegate/stand-in-postgres
  PROMETHEUS_IMAGE=tidegate/stand-in-prometheus
END
