#!/usr/bin/env bash
# Builds the binding and runs a YCSB workload over UDP on a PRISM-KV server, or on the replicas of a
# PRISM-RS group: their ports in order, with commas.
#   run.sh WORKLOAD KEYFILE PORT[,PORT...] [RECORDS] [OPERATIONS] [THREADS]
set -euo pipefail
if [[ $# -lt 3 ]]; then
    echo "usage: run.sh a|b|c|f KEYFILE PORT[,PORT...] [RECORDS] [OPERATIONS] [THREADS]" >&2
    exit 2
fi
workload=$1 key=$(realpath "$2") port=$3 records=${4:-1000} operations=${5:-10000} threads=${6:-1}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for tool in java mvn; do
    command -v "$tool" >/dev/null || { echo "run.sh: $tool is not installed" >&2; exit 3; }
done
case $workload in
a) shares=(-p readproportion=0.5 -p updateproportion=0.5 -p readmodifywriteproportion=0) ;;
b) shares=(-p readproportion=0.95 -p updateproportion=0.05 -p readmodifywriteproportion=0) ;;
c) shares=(-p readproportion=1 -p updateproportion=0 -p readmodifywriteproportion=0) ;;
f) shares=(-p readproportion=0.5 -p updateproportion=0 -p readmodifywriteproportion=0.5) ;;
*) echo "run.sh: there is no workload '$workload'" >&2; exit 2 ;;
esac
# Blocks have numbers, and so have keys that are not hashed.
case $port in
*,*) at=(-p prism.group="$port" -p insertorder=ordered) ;;
*) at=(-p prism.port="$port") ;;
esac
mvn -q -B -f "$here/pom.xml" package
class_path="$here/target/ycsb-prism-0.1.0.jar:$here/target/lib/*"
ycsb() {
    java -cp "$class_path" site.ycsb.Client "$1" -db tercio.prism.ycsb.PrismClient \
        -threads "$threads" -p workload=site.ycsb.workloads.CoreWorkload \
        -p recordcount="$records" -p operationcount="$operations" \
        -p requestdistribution=zipfian -p scanproportion=0 -p insertproportion=0 \
        -p dataintegrity=true -p fieldlengthdistribution=constant \
        "${shares[@]}" -p prism.keyfile="$key" "${at[@]}"
}
report=$(mktemp)
trap 'rm -f "$report"' EXIT
for phase in -load -t; do
    ycsb "$phase" 2>&1 | tee -a "$report"
done
if grep -E 'Return=(ERROR|NOT_FOUND|UNEXPECTED_STATE|NOT_IMPLEMENTED)|^prism: |FAILED\], Operations' "$report"; then
    echo "run.sh: operations failed" >&2
    exit 1
fi
grep -q '\[OVERALL\], Throughput' "$report" || { echo "run.sh: YCSB gave no report" >&2; exit 1; }
echo "ycsb $workload: no errors"
