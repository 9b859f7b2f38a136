#!/bin/sh
# Make .venv from the lock file: `make venv`. Takes $PYTHON when set, else the first Python >= 3.11 on PATH.
set -eu

usable() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
  if usable "$candidate"; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "Iris needs Python 3.11 or newer; none of these is: ${PYTHON:-python3 python3.13 python3.12 python3.11}." >&2
  echo "Install one, or name it: make venv PYTHON=/path/to/python3.12" >&2
  exit 1
fi

# Made afresh, so that nothing lingers that the lock file no longer names.
rm -rf .venv
if ! "$python" -m venv .venv; then
  rm -rf .venv
  echo "$python cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2
  exit 1
fi
lock=requirements/dev.lock
log=.venv/install.log

# On a terminal the line says how many packages have been fetched; elsewhere pip is quiet.
install() {
  if [ ! -t 1 ]; then
    .venv/bin/python -m pip --disable-pip-version-check install -qq "$@"
    return
  fi
  .venv/bin/python -m pip --disable-pip-version-check install "$@" >"$log" 2>&1 &
  while kill -0 $! 2>/dev/null; do
    if grep -q '^Installing collected' "$log"; then step="installing"; else step="fetching"; fi
    printf '\r\033[K  %s packages, %s' "$(grep -c '^Collecting' "$log")" "$step"
    sleep 1
  done
  printf '\r\033[K'
  wait $! || { cat "$log" >&2; return 1; }
}

echo "Installing into .venv with $("$python" --version); the first time this takes a minute or two ..."
install --require-hashes --requirement "$lock"
.venv/bin/python -m pip --disable-pip-version-check install -qq --no-deps --no-build-isolation --editable .
