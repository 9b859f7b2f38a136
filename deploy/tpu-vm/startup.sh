#!/bin/sh
# Startup script of a TPU VM: makes it a worker, at every boot and as often as it is run. Needs python3-venv, curl and
# systemd, and the VM's metadata. The worker itself reads there which VM of which slice this is, and that the VM is about
# to be preempted or terminated for maintenance.
#
# Metadata of the instance; the provisioner's provider tpu sets what it needs:
#   iris-config   the text of iris.toml ([nats] url and so on)
#   iris-hosts    a line for each VM of the slice, in the order of their numbers: the worker's name and its nkey seed
#   iris-nkey     without iris-hosts: the worker's nkey seed; leave it out when the image has /etc/iris/worker.seed
#   iris-nats-ca  the certificates that sign those of the NATS servers, for [nats] tls_ca = "/etc/iris/nats-ca.pem"
#   iris-unit     the text of iris-worker.service; without it the file beside this one is used
#   iris-wheels   a directory on the image with the wheels of iris and all it needs; without it pip's index is used
#   iris-version  a release; left out, the newest there is
#
# Beside this file, where iris-unit is not set: iris-worker.service of deploy/systemd.
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

# The worker's name and its key: of the line of this VM, or made of the slice and the place in it.
identify() {
  number=$(meta attributes/agent-worker-number)
  hosts=$(meta attributes/iris-hosts)
  if [ -n "$number" ] && [ -n "$hosts" ]; then
    line=$(printf '%s\n' "$hosts" | sed -n "$((number + 1))p")
    worker=${line%% *}
    key=${line#"$worker"}
    key=${key# }
    if [ -z "$worker" ]; then
      echo "the metadata names no worker for VM $number (iris-hosts)" >&2
      exit 1
    fi
    return
  fi
  slice=$(meta attributes/tpu-env | sed -n "s/^NODE_ID: *'\(.*\)'.*/\1/p")
  if [ -z "$slice" ] || [ -z "$number" ]; then
    echo "the metadata does not say which TPU VM this is (tpu-env, agent-worker-number)" >&2
    exit 1
  fi
  worker="$slice-w$number"
  key=$(meta attributes/iris-nkey)
}

configure() {
  etc="$ROOT/etc/iris"
  units="$ROOT/etc/systemd/system"
  mkdir -p "$etc" "$units"
  echo "IRIS_WORKER_ID=$worker" >"$etc/worker.env.new"
  place "$etc/worker.env" 600
  meta attributes/iris-config >"$etc/iris.toml.new"
  place "$etc/iris.toml" 644
  meta attributes/iris-nats-ca >"$etc/nats-ca.pem.new"
  if [ -s "$etc/nats-ca.pem.new" ]; then
    place "$etc/nats-ca.pem" 644
  else
    rm "$etc/nats-ca.pem.new"
  fi
  if [ -n "$key" ]; then
    (umask 077 && printf '%s' "$key" >"$etc/worker.seed.new")
    place "$etc/worker.seed" 600
  fi
  meta attributes/iris-unit >"$units/iris-worker.service.new"
  if [ ! -s "$units/iris-worker.service.new" ]; then
    cp "$HERE/iris-worker.service" "$units/iris-worker.service.new"
  fi
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
identify
configure
start
