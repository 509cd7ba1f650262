#!/usr/bin/env bash
# The dashboard in headless Chromium, in front of a whole local installation. Installs the browser
# with apt-get where none is on PATH; CHROME names another one.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}

has_browser() {
  [ -n "${CHROME:-}" ] || command -v chromium || command -v chromium-browser \
    || command -v google-chrome || command -v google-chrome-stable
}

if ! has_browser >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Chromium is needed: install it, or set CHROME to a browser, and run this again." >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # Fonts too: without one every page is blank, and Chinese is empty boxes.
  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core fonts-wqy-microhei >/dev/null
fi

"$PYTHON" -m pytest -m e2e --durations=5 tests/e2e "$@"
