#!/usr/bin/env bash
# Run a pipeline on Kubernetes, driver included, in an image that holds Spark, Python and this package.
#
#   IMAGE=registry/millwheel-spark:0.1 CLAIM=millwheel-root \
#   deploy/kubernetes.sh k8s://https://HOST:6443 /opt/pipelines/ads/pipeline.yaml \
#     --set input=/root-volume/input --root /root-volume/ads --zookeeper zookeeper:2181/millwheel
#
# IMAGE: made from deploy/Dockerfile. CLAIM: a ReadWriteMany volume claim, mounted at /root-volume in all pods.
# EXECUTORS (default 2) workers are started, each in a pod of its own, and EXTRA_EXECUTORS for spares.
# POD_TEMPLATE is the template of their pods; the default says on which node a worker runs.
set -euo pipefail
[ $# -ge 2 ] && [ -n "${IMAGE:-}" ] && [ -n "${CLAIM:-}" ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
master=$1
shift
workers=${EXECUTORS:-2}
template=${POD_TEMPLATE:-$(dirname "$(realpath "$0")")/kubernetes_executor.yaml}
light="-XX:+UseSerialGC -XX:TieredStopAtLevel=1" # the JVMs only carry Python; extraJavaOptions of yours stand above
volume() {
  local prefix=spark.kubernetes.$1.volumes.persistentVolumeClaim.root
  printf '%s\n' --conf "$prefix.mount.path=/root-volume" --conf "$prefix.options.claimName=$CLAIM"
}
mapfile -t volumes < <(volume driver; volume executor)
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
  --master "$master" \
  --deploy-mode cluster \
  --name millwheel \
  --conf spark.kubernetes.container.image="$IMAGE" \
  --conf spark.kubernetes.namespace="${NAMESPACE:-default}" \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName="${SERVICE_ACCOUNT:-spark}" \
  --conf spark.executor.instances="$((workers + ${EXTRA_EXECUTORS:-0}))" \
  --conf spark.kubernetes.executor.podTemplateFile="$template" \
  --conf spark.executor.cores=1 \
  --conf spark.executor.memory=512m \
  --conf spark.driver.defaultJavaOptions="$light" \
  --conf spark.executor.defaultJavaOptions="$light" \
  --conf spark.executor.memoryOverhead="${WORKER_MEMORY:-1g}" \
  --conf spark.executor.maxNumFailures=100000 \
  "${volumes[@]}" \
  "${conf[@]}" \
  local:///opt/millwheel/deploy/spark_submit.py "${arguments[@]}" --workers "$workers" --listen auto
