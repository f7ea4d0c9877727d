#!/usr/bin/env bash
# Chromium is installed, for `make browser`: Debian's package, as root, where it is missing.
set -euo pipefail

command -v chromium >/dev/null && exit
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "No Chromium is installed, and the tests with it will fail; as root: apt-get install chromium" >&2
    exit
fi
echo "Installing Chromium for the tests of the console"
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null || {
    echo "Chromium could not be installed, and the tests with it will fail: see apt-get's message above" >&2
    exit
}
