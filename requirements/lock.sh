#!/usr/bin/env bash
# Pin every dependency with hashes: `make lock` refreshes, `make lock UPGRADE=1` moves to the newest releases.
# The files name no index, host or path, so they install through whatever pip is configured to use.
# Compiled on the oldest Python supported: what it needs is installable on the newer ones too, and nothing else is needed
# there (seen by compiling on each and comparing).
set -euo pipefail
cd "$(dirname "$0")/.."

compile() { # output, source, then more options
  local output=$1 source=$2
  shift 2
  CUSTOM_COMPILE_COMMAND="make lock" python -m piptools compile --quiet ${UPGRADE:+--upgrade} \
    --generate-hashes --no-annotate --strip-extras --unsafe-package iris-control-plane --no-allow-unsafe \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
    --output-file "requirements/$output" "$@" "$source"
  # pip-tools ends with a warning about what it left out; that is only ourselves.
  local text
  text=$(sed '/^# WARNING: The following packages were not pinned/,$d' "requirements/$output")
  printf '%s\n' "$text" >"requirements/$output"
}

compile local.lock pyproject.toml --extra local --extra otlp --extra gcp
compile dev.lock pyproject.toml --extra local --extra otlp --extra gcp --extra dev --constraint requirements/local.lock
compile docs.lock pyproject.toml --extra docs --constraint requirements/dev.lock
compile build.lock requirements/build.in --constraint requirements/dev.lock --allow-unsafe
