#!/usr/bin/env bash
# Everything that the other targets need is there: .venv with the locked packages, and the jars of Spark and the broker.
# Says nothing when that is so already. Needs Python 3.11 or later with venv, and Java 17 or later. Arguments: the
# steps to take, if not all.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=.venv
DOWNLOADS=.tidegate/python

fail() { # problem, remedy; wrong use or configuration, like exit code 2 of the command
    printf 'set-up stopped: %s\n  remedy: %s\n' "$1" "$2" >&2
    exit 2
}

timed() { # label, command...: runs it and prints how long it took
    local label=$1 started=$SECONDS
    shift
    "$@"
    printf '%s: %s s\n' "$label" "$((SECONDS - started))"
}

python() { # the first Python that is new enough
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or later was found" "install one, or name it: make setup PYTHON=/path/to/python3.12"
}

check_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java told version
    told=$("$java" -version 2>&1) || fail "Java was not found" "install Java 17 or later and put it on PATH, or set JAVA_HOME"
    version=$(sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' <<<"$told")
    [ "${version:-0}" -ge 17 ] || fail "Java ${version:-of unknown version} is too old ($java)" \
        "install Java 17 or later and put it on PATH, or set JAVA_HOME"
}

check_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$1 cannot make virtual environments" "install its venv module (Debian and Ubuntu: apt install python3-venv)"
}

pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }

no_packages() { fail "the Python packages could not be $1" "see pip's message above; check the network and pip's proxy and index settings, then run it again"; }

download() { # one line a package; setuptools first, because some packages are built from source
    awk '/^setuptools==/,!/\\$/' requirements.lock >"$DOWNLOADS/build.lock"
    pip install --quiet --no-deps --require-hashes -r "$DOWNLOADS/build.lock" || no_packages fetched
    pip download --no-deps --require-hashes --no-build-isolation --dest "$DOWNLOADS" -r requirements.lock |
        sed -nE 's/^ *(Downloading|Using cached) (.*)/  \2/p' || no_packages fetched
}

install() { # PySpark is packed and unpacked at once: to compress its 400 MB in between only takes time
    pip install --quiet --no-index --find-links "$DOWNLOADS" --no-deps --require-hashes --no-build-isolation \
        --config-settings=--build-option=--compression=stored -r requirements.lock || no_packages installed
}

packages() { # a changed lock gets a new environment, so that nothing is left of the old one
    cmp -s requirements.lock "$VENV/requirements.lock" && return
    local python
    python=$(python)
    check_venv "$python"
    echo "Creating $VENV with $("$python" --version)"
    "$python" -m venv --clear "$VENV"
    mkdir -p "$DOWNLOADS"
    echo "Fetching the Python packages (about 700 MB)"
    timed "Fetched the Python packages (download)" download
    echo "Installing the Python packages (PySpark is built from source: a minute or two)"
    timed "Installed the Python packages" install
    rm -rf "$DOWNLOADS"
    cp requirements.lock "$VENV/requirements.lock"
}

project() { # this checkout as a package, with the tidegate command
    cmp -s pyproject.toml "$VENV/pyproject.toml" && return
    pip install --quiet --no-index --no-deps --no-build-isolation --editable . || no_packages installed
    cp pyproject.toml "$VENV/pyproject.toml"
}

prepare() { # jars and kernels, and the server of the tests where they are; progress is on stderr
    "$VENV/bin/tidegate" setup --s3 >/dev/null
    [ ! -d tests ] || "$VENV/bin/python" -m tests.lake.s3_server >&2
}

for step in ${*:-check_java packages project prepare}; do "$step"; done
