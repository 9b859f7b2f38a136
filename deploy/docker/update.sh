#!/bin/sh
# Update a stack that runs to this clone, one container at a time: `deploy/docker/update.sh [SERVICE...]`, from any
# directory. Without names it updates all of docker-compose.yml.
#
# The order is that of docs/operating.md#upgrading: who reads what others write is replaced before them, so workers come
# after gateways.
#
# The next container is replaced when the one before is ready: of each pair the other one serves meanwhile. A worker is
# drained first, and replaced when its last task has ended, however long that takes; routes of deployments are moved.
# nginx, the one way in, is replaced only when its image or its configuration is another.
#
# A gateway or a proxy is left alone for a while once it is ready: nginx asks for its new address every 2 s, and until
# then knows the old one and that of the other of the pair, which must not be replaced meanwhile.
#
# COMPOSE  the command; `docker compose` when it is not set
# WITHIN   seconds that a container may take until it is ready; 300
set -eu

cd "$(dirname "$0")/../.."
COMPOSE=${COMPOSE:-docker compose}
WITHIN=${WITHIN:-300}

# compose WORD...: Compose with these words. COMPOSE may be several words itself.
compose() {
  # shellcheck disable=SC2086
  $COMPOSE "$@" < /dev/null
}

# iris WORD...: the command line as admin.
iris() {
  compose run --rm -T cli "$@"
}

# is_ready SERVICE: whether the next one may be replaced. A NATS server has fetched by then what it missed.
is_ready() {
  case $1 in
    nats-*) compose exec -T "$1" wget -q -O /dev/null http://127.0.0.1:8222/healthz ;;
    nginx | prometheus | grafana)
      [ "$(docker inspect --format '{{.State.Health.Status}}' "$(compose ps --quiet "$1")")" = healthy ]
      ;;
    *) compose exec -T "$1" python -I -S /opt/iris/healthy.py /readyz ;;
  esac
}

# is_idle WORKER: whether no task is there.
is_idle() {
  iris worker list --output jsonl | grep "\"id\":\"$1\"" | grep -q '"tasks":\[\]'
}

# replace SERVICE: a new container, and waits until it is ready.
replace() {
  compose rm --stop --force "$1"
  compose up --detach --no-deps --no-build "$1"
  waited=0
  until is_ready "$1"; do
    if [ "$waited" -ge "$WITHIN" ]; then
      echo "$1 is not ready after $WITHIN s. Read \`$COMPOSE logs $1\`, then run this for $1 and those after it." >&2
      exit 1
    fi
    sleep 2
    waited=$((waited + 2))
  done
}

# move_routes WORKER: of each deployment ends one route there, which starts elsewhere, unless it is the only one that
# gets requests.
move_routes() {
  for deployment in $(iris deploy list --output name); do
    routes=$(iris deploy routes "$deployment" --output jsonl | grep '"discovered":true') || continue
    here=$(echo "$routes" | grep -m 1 "\"worker\":\"$1\"") || continue
    if [ "$(echo "$routes" | wc -l)" -gt 1 ]; then
      iris cancel --reason "$1 is updated" "$(echo "$here" | sed 's/.*"job_id":"\([^"]*\)".*/\1/')"
    else
      echo "the only route of $deployment is on $1: scale it to 2, or cancel it" >&2
    fi
  done
}

# replace_worker WORKER: the same, between two of its tasks.
replace_worker() {
  iris worker drain --reason "it is updated" "$1"
  until is_idle "$1"; do
    move_routes "$1"
    sleep 5
  done
  replace "$1"
  iris worker undrain "$1"
}

compose build init
# Accounts and keys that the new release wants; NATS servers read them when they start.
compose run --rm -T init
if [ $# -eq 0 ]; then
  set -- nats-1 nats-2 nats-3 state-1 state-2 scheduler-1 scheduler-2 gateway-1 gateway-2 \
    proxy-1 proxy-2 provisioner-1 provisioner-2 notifier-1 notifier-2 worker-1 worker-2 nginx prometheus grafana
fi
for service in "$@"; do
  echo "$service" >&2
  case $service in
    worker-*) replace_worker "$service" ;;
    nginx)
      if compose exec -T nginx cat /etc/nginx/nginx.conf | cmp -s - deploy/docker/nginx.conf; then
        compose up --detach --no-deps --no-build nginx
      else
        replace nginx
      fi
      ;;
    gateway-* | proxy-*)
      replace "$service"
      sleep 5
      ;;
    *) replace "$service" ;;
  esac
done
