#!/usr/bin/env bash
# A PostgreSQL server is installed, for the tests that start one: Debian's package, as root, where it is missing.
# Nothing of it runs afterwards, and the cluster that the package makes is gone; one that was there before stays.
set -euo pipefail

installed() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

installed && exit
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "No PostgreSQL server is installed, and its tests will fail; as root: apt-get install postgresql" >&2
    exit
fi
echo "Installing PostgreSQL's server for the tests"
export DEBIAN_FRONTEND=noninteractive
before=$(ls /etc/postgresql 2>/dev/null || true)
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql; } >/dev/null || {
    echo "PostgreSQL could not be installed, and its tests will fail: see apt-get's message above" >&2
    exit
}
for version in $(ls /etc/postgresql); do
    grep -qx "$version" <<<"$before" || pg_dropcluster --stop "$version" main
done
