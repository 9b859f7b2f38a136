#!/bin/sh
# One task of a gang as one node of a Ray cluster: `sh node.sh COMMAND...` runs COMMAND once, on the head, which is task 0.
ray symmetric-run --address "$IRIS_COORDINATOR_ADDRESS" --min-nodes "$IRIS_NUM_TASKS" --num-cpus 1 -- \
    sh -c 'touch "$IRIS_WORKDIR/ran" && exec "$@"' sh "$@" || exit
# It also ends with 0 when Ray could not start. Then COMMAND has not run, and the head must not end as if it had.
[ "$IRIS_TASK_INDEX" != 0 ] || [ -e "$IRIS_WORKDIR/ran" ]
