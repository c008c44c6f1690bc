#!/usr/bin/env bash
# ./$name.sh HOST...: the same command on $nodes machines over ssh, this folder shared or copied to all of them. The first
# host is where the processes meet; port $port must be open between them. Ctrl-C ends all.
set -euo pipefail
[ "$$#" -eq $nodes ] || { echo "usage: $$0 HOST... ($nodes of them)" >&2; exit 2; }
hosts=("$$@")
experiment=$experiment
trap 'kill $$(jobs -p) 2>/dev/null || true' EXIT
for node in $$(seq 0 $last); do
  ssh -tt -o BatchMode=yes "$${hosts[$$node]}" "cd $$(printf %q "$$PWD") && exec torchrun \
    --nnodes=$nodes --nproc-per-node=$devices --node-rank=$$node --max-restarts=3 \
    --rdzv-backend=c10d --rdzv-id=$name --rdzv-endpoint=$${hosts[0]}:$port \
    -m headwise train $$(printf %q "$$experiment")" &
done
for node in $$(seq 0 $last); do
  wait -n || exit 1  # one that failed ends the others
done
