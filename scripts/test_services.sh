#!/usr/bin/env bash
# Runs the dispatch, API and tenancy tests on a real PostgreSQL and a real Redis, both started here
# in a temporary folder and stopped again. Installs the servers with apt-get where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}

pg_bin() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1; }

if [ -z "$(pg_bin)" ] || ! command -v redis-server >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "PostgreSQL and redis-server are needed: install them and run this again." >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends postgresql redis-server >/dev/null
  # Debian starts both with the package; this script uses servers of its own.
  service postgresql stop >/dev/null 2>&1 || true
  service redis-server stop >/dev/null 2>&1 || true
fi

BIN=$(pg_bin)
WORK=$(mktemp -d)
free_port() { "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
as_postgres() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

cleanup() {
  [ -n "${REDIS_PID:-}" ] && kill "$REDIS_PID" 2>/dev/null || true
  as_postgres "$BIN/pg_ctl" -D "$WORK/pg" -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$WORK"
}
trap cleanup EXIT

chmod 755 "$WORK"
mkdir "$WORK/pg"
[ "$(id -u)" = 0 ] && chown postgres "$WORK/pg"
PG_PORT=$(free_port)
REDIS_PORT=$(free_port)
as_postgres "$BIN/initdb" -D "$WORK/pg" -U advisor --auth=trust >/dev/null
as_postgres "$BIN/pg_ctl" -D "$WORK/pg" -w -l "$WORK/pg/log" \
  -o "-p $PG_PORT -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off" start >/dev/null
redis-server --port "$REDIS_PORT" --bind 127.0.0.1 --save "" --dir "$WORK" >"$WORK/redis.log" &
REDIS_PID=$!

export DATABASE_URL="postgres://advisor@127.0.0.1:$PG_PORT/postgres"
export REDIS_URL="redis://127.0.0.1:$REDIS_PORT/0"
"$PYTHON" -m pytest -m "not gpu and not engines and not e2e" \
  tests/services tests/contract tests/advisor/studies tests/advisor/api tests/advisor/test_tenancy.py "$@"
# What takes long and needs no service, from all other folders.
"$PYTHON" -m pytest -m "services and not gpu and not engines and not e2e" tests/gpuagent tests/advisor/pages tests/advisor/i18n \
  tests/advisor/reports tests/stack "$@"
