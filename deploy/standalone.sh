#!/usr/bin/env bash
# Run a pipeline on a standalone Spark cluster.
#
#   deploy/standalone.sh spark://HOST:7077 PIPELINE.yaml --set input=… --root /shared/ads --workers 2
#
# Every machine needs the root folder under the same path, and PYSPARK_PYTHON with the dependencies installed;
# the package itself is sent along. For executors on several machines add
#   --listen auto --zookeeper HOST:2181/millwheel
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=${MILLWHEEL_ZIP:-$here/../build/millwheel.zip}
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -f "$package" ] || { echo "There is no $package: run \`make package\` first, or set MILLWHEEL_ZIP" >&2; exit 1; }
master=$1
shift
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
  --master "$master" \
  --deploy-mode client \
  --conf spark.ui.showConsoleProgress=false \
  --conf spark.driver.defaultJavaOptions="$light" \
  --conf spark.executor.defaultJavaOptions="$light" \
  "${conf[@]}" \
  --py-files "$package" \
  "$here/spark_submit.py" "${arguments[@]}"
