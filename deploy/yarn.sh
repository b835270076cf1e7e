#!/usr/bin/env bash
# Run a pipeline on YARN, driver included: the shell may end, the pipeline goes on.
#
#   deploy/yarn.sh PIPELINE.yaml ENVIRONMENT.tar.gz --set input=… --root /shared/ads --zookeeper HOST:2181/millwheel
#
# ENVIRONMENT.tar.gz is a relocatable Python environment with the dependencies (conda-pack or venv-pack make one).
# The root must be a folder that every node mounts under the same path, and so must the pipeline's folder.
# EXECUTORS (default 2) workers are started, each in a container of its own, and EXTRA_EXECUTORS for spares.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=${MILLWHEEL_ZIP:-$here/../build/millwheel.zip}
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -f "$package" ] || { echo "There is no $package: run \`make package\` first, or set MILLWHEEL_ZIP" >&2; exit 1; }
pipeline=$1 environment=$2
shift 2
workers=${EXECUTORS:-2}
light="-XX:+UseSerialGC -XX:TieredStopAtLevel=1" # the JVMs only carry Python; extraJavaOptions of yours stand above
conf=() arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --conf) conf+=(--conf "${2:?--conf needs NAME=VALUE}") && shift 2 ;;
    --conf=*) conf+=(--conf "${1#--conf=}") && shift ;;
    *) arguments+=("$1") && shift ;;
  esac
done
submit=("${SPARK_SUBMIT:-spark-submit}")
[ -z "${DRY_RUN:-}" ] || submit=(printf '%s\n' "${submit[@]}")
exec "${submit[@]}" \
  --master yarn \
  --deploy-mode "${DEPLOY_MODE:-cluster}" \
  --num-executors "$((workers + ${EXTRA_EXECUTORS:-0}))" \
  --executor-cores 1 \
  --executor-memory 512m \
  --conf spark.driver.defaultJavaOptions="$light" \
  --conf spark.executor.defaultJavaOptions="$light" \
  --conf spark.executor.memoryOverhead="${WORKER_MEMORY:-1g}" \
  --conf spark.yarn.maxAppAttempts=100 \
  --conf spark.yarn.am.attemptFailuresValidityInterval=1h \
  --conf spark.yarn.max.executor.failures=100000 \
  --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
  --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python \
  --archives "$environment#environment" \
  "${conf[@]}" \
  --py-files "$package" \
  "$here/spark_submit.py" "$pipeline" --workers "$workers" --listen auto "${arguments[@]}"
