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
echo "Installing into .venv with $("$python" --version) ..."
.venv/bin/python -m pip --disable-pip-version-check install -qq --require-hashes --requirement requirements/dev.lock
.venv/bin/python -m pip --disable-pip-version-check install -qq --no-deps --no-build-isolation --editable .
