#!/usr/bin/env bash
# On one GPU, within about 8 minutes: does what could not be tried without one work? A table, and an exit code by it.
#   tests/gpu/all.sh [MODEL]       MODEL: a folder or hub id for the 20 steps; default: tiny:arithmetic
# Without a GPU the parts that need one are named as skipped, the rest is run, and the exit code is by the rest.
# Written without a GPU at hand: there only its CPU parts have been run.
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python} model=${1:-tiny:arithmetic}
log=$(mktemp -d) failed=0
trap 'rm -rf "$log"' EXIT
gpu=$("$python" -c 'import torch; print(int(torch.cuda.is_available()))') || exit 2

part() { # part NAME needs-gpu|any SECONDS COMMAND...
  local name=$1 needs=$2 limit=$3 began=$SECONDS result
  shift 3
  if [ "$needs" = needs-gpu ] && [ "$gpu" = 0 ]; then
    printf '%-34s skipped: no GPU\n' "$name"
    return
  fi
  if timeout "$limit" "$@" >"$log/out" 2>&1; then result=passed; else result=FAILED; failed=1; fi
  printf '%-34s %-8s %4d s\n' "$name" "$result" $((SECONDS - began))
  if [ "$result" = FAILED ]; then tail -n 15 "$log/out" | sed 's/^/    /'; fi
}

part "install (doctor)" any 60 "$python" -m r1zero doctor
part "plan against this device" any 60 "$python" -m r1zero plan tiny-cpu --model.path "$model"
part "attention masks, eager" any 120 "$python" -m pytest -q tests/models/test_packing.py -k "flex or alone"
part "packed attention on the GPU" needs-gpu 90 "$python" -m pytest -q tests/models/test_packing.py -m gpu
part "MFU and mismatch" needs-gpu 120 "$python" tests/bench/bench_gpu.py
part "20 steps: sync, sleep and wake" needs-gpu 150 "$python" -m r1zero train tiny-cpu --model.path "$model" \
  --model.dtype bfloat16 --engine.name vllm --run.steps 20 --run.root "$log/runs" --eval.every 0
exit "$failed"
