#!/bin/sh
# Startup script of a TPU VM: makes it a worker, at every boot and as often as it is run. Needs python3-venv, curl and
# systemd, and the VM's metadata. The worker itself reads there which VM of which slice this is, and that the VM is about
# to be preempted or terminated for maintenance.
#
# Metadata of the instance:
#   iris-config   the text of iris.toml ([nats] url and so on)
#   iris-nkey     the worker's nkey seed; leave it out when the image has /etc/iris/worker.seed
#   iris-wheels   a directory on the image with the wheels of iris and all it needs; without it pip's index is used
#   iris-version  a release; left out, the newest there is
#
# Beside this file: iris-worker.service of deploy/systemd.
set -eu

ROOT=${STARTUP_ROOT:-}
METADATA=${STARTUP_METADATA:-http://metadata.google.internal/computeMetadata/v1}
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# meta PATH: a value of the metadata; nothing when there is none.
meta() {
  curl -sf --retry 5 --max-time 10 -H 'Metadata-Flavor: Google' "$METADATA/instance/$1" || true
}

# place FILE MODE: replaces FILE by FILE.new when they differ. Whether it did is in $changed.
place() {
  if cmp -s "$1.new" "$1"; then
    rm "$1.new"
  else
    chmod "$2" "$1.new"
    mv "$1.new" "$1"
    changed=1
  fi
}

install_iris() {
  wanted=$(meta attributes/iris-version)
  wheels=$(meta attributes/iris-wheels)
  stamp="$ROOT/opt/iris/.installed"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    return
  fi
  mkdir -p "$ROOT/opt"
  python3 -m venv "$ROOT/opt/iris"
  if [ -n "$wheels" ]; then
    export PIP_NO_INDEX=1 PIP_FIND_LINKS="$wheels"
  fi
  "$ROOT/opt/iris/bin/pip" install --quiet "iris-control-plane[server]${wanted:+==$wanted}"
  printf '%s' "$wanted" >"$stamp"
  changed=1
}

# The worker's name: slice, and place in it.
configure() {
  etc="$ROOT/etc/iris"
  units="$ROOT/etc/systemd/system"
  mkdir -p "$etc" "$units"
  slice=$(meta attributes/tpu-env | sed -n "s/^NODE_ID: *'\(.*\)'.*/\1/p")
  number=$(meta attributes/agent-worker-number)
  if [ -z "$slice" ] || [ -z "$number" ]; then
    echo "the metadata does not say which TPU VM this is (tpu-env, agent-worker-number)" >&2
    exit 1
  fi
  echo "IRIS_WORKER_ID=$slice-w$number" >"$etc/worker.env.new"
  place "$etc/worker.env" 600
  meta attributes/iris-config >"$etc/iris.toml.new"
  place "$etc/iris.toml" 644
  (umask 077 && meta attributes/iris-nkey >"$etc/worker.seed.new")
  if [ -s "$etc/worker.seed.new" ]; then
    place "$etc/worker.seed" 600
  else
    rm "$etc/worker.seed.new"
  fi
  cp "$HERE/iris-worker.service" "$units/iris-worker.service.new"
  place "$units/iris-worker.service" 644
}

start() {
  id iris >/dev/null 2>&1 || useradd --system --no-create-home iris
  systemctl daemon-reload
  systemctl enable --quiet iris-worker.service
  if [ -n "$changed" ]; then
    systemctl restart iris-worker.service
  else
    systemctl start iris-worker.service
  fi
}

# The unit runs as the user iris, which reads the program and iris.toml; only the key and worker.env are root's alone.
umask 022
changed=
install_iris
configure
start
