#!/bin/sh
# Startup script of a TPU VM: makes it a worker, at every boot and as often as it is run. Needs python3-venv, curl and
# systemd, and the VM's metadata.
#
#   startup.sh          install, configure and start
#   startup.sh watch    stop the worker when the VM is about to be preempted or terminated for maintenance
#
# Metadata of the instance:
#   iris-config   the text of iris.toml ([nats] url and so on)
#   iris-nkey     the worker's nkey seed; leave it out when the image has /etc/iris/worker.seed
#   iris-wheels   a directory on the image with the wheels of iris and all it needs; without it pip's index is used
#   iris-version  a release; left out, the newest there is
#
# Beside this file: iris-worker.service of deploy/systemd and iris-notice.service.
set -eu

ROOT=${STARTUP_ROOT:-}
METADATA=${STARTUP_METADATA:-http://metadata.google.internal/computeMetadata/v1}
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
POLL_S=${STARTUP_POLL_S:-1}

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
  python3 -m venv "$ROOT/opt/iris"
  if [ -n "$wheels" ]; then
    export PIP_NO_INDEX=1 PIP_FIND_LINKS="$wheels"
  fi
  "$ROOT/opt/iris/bin/pip" install --quiet "iris[server]${wanted:+==$wanted}"
  printf '%s' "$wanted" >"$stamp"
  changed=1
}

# What this VM is: slice, place in it, variant.
configure() {
  etc="$ROOT/etc/iris"
  units="$ROOT/etc/systemd/system"
  mkdir -p "$etc" "$units"
  slice=$(meta attributes/tpu-env | sed -n "s/^NODE_ID: *'\(.*\)'.*/\1/p")
  number=$(meta attributes/agent-worker-number)
  variant=$(meta attributes/accelerator-type)
  if [ -z "$slice" ] || [ -z "$number" ] || [ -z "$variant" ]; then
    echo "the metadata does not say which TPU VM this is (tpu-env, agent-worker-number, accelerator-type)" >&2
    exit 1
  fi
  "$ROOT/opt/iris/bin/python" - "$slice" "$number" "$variant" >"$etc/worker.env.new" <<'END'
import sys
from iris_core.topology import TOPOLOGIES

name, number, variant = sys.argv[1:]
topology = TOPOLOGIES[variant]
attributes = {
    "tpu-name": name, "tpu-worker-id": number, "tpu-topology": variant, "tpu-vm-count": topology.vm_count,
    "device-type": "tpu", "device-variant": variant,
}
print(f"IRIS_WORKER_ID={name}-w{number}")
print(f"IRIS_WORKER_CHIPS={topology.chips_per_vm}")
print("IRIS_WORKER_ATTRIBUTES=" + ",".join(f"{key}={value}" for key, value in attributes.items()))
END
  place "$etc/worker.env" 600
  meta attributes/iris-config >"$etc/iris.toml.new"
  place "$etc/iris.toml" 644
  meta attributes/iris-nkey >"$etc/worker.seed.new"
  if [ -s "$etc/worker.seed.new" ]; then
    place "$etc/worker.seed" 600
  else
    rm "$etc/worker.seed.new"
  fi
  for unit in iris-worker.service iris-notice.service; do
    cp "$HERE/$unit" "$units/$unit.new"
    place "$units/$unit" 644
  done
  cp "$HERE/startup.sh" "$ROOT/opt/iris/startup.sh.new"
  place "$ROOT/opt/iris/startup.sh" 755
}

start() {
  id iris >/dev/null 2>&1 || useradd --system --no-create-home iris
  systemctl daemon-reload
  systemctl enable --quiet iris-worker.service iris-notice.service
  if [ -n "$changed" ]; then
    systemctl restart iris-worker.service
  else
    systemctl start iris-worker.service
  fi
  systemctl start iris-notice.service
}

# A worker that is stopped tells its tasks to end and reports that its host is gone, so they start elsewhere at once
# instead of after worker_grace_s.
watch() {
  until [ "$(meta preempted)" = TRUE ] || [ "$(meta maintenance-event)" = TERMINATE_ON_HOST_MAINTENANCE ]; do
    sleep "$POLL_S"
  done
  echo "this VM is about to be taken away: stopping the worker"
  systemctl stop iris-worker.service
}

umask 077
changed=
if [ "${1:-}" = watch ]; then
  watch
else
  install_iris
  configure
  start
fi
