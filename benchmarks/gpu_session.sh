#!/usr/bin/env bash
# Everything that only a GPU can answer, in one unattended run of a few minutes:
#
#   benchmarks/gpu_session.sh OUTDIR
#
# Builds memx with what is installed, without downloads, then runs the driver's conformance, the tests marked gpu, the
# cost of each driver call, training with PyTorch's allocators and memx, and the demo and replays that need more memory than they get, every byte checked by kernels.
# Each stage's log, results and exit status go to OUTDIR; a stage that fails does not stop the next. summary.txt says
# how each ended, session.tar.gz holds everything, and the exit status is the number of stages that failed.
# Where there is no GPU it says so and runs the same stages on the simulated device.
# PYTHON chooses the interpreter; MEMX_STAGE_SECONDS and MEMX_SESSION_SECONDS bound a stage and the whole.
set -uo pipefail

if [ $# -ne 1 ]; then
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
python=$(command -v "${PYTHON:-python3}")
stage_seconds=${MEMX_STAGE_SECONDS:-300}
session_seconds=${MEMX_SESSION_SECONDS:-540}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
site=$work/site
failed=0

say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }

# stage NAME COMMAND...: what it prints goes to NAME.log, its status to NAME.status and the summary.
# It runs in an empty directory, so that the package which was built is imported and not the sources.
stage() {
  local name=$1 start=$SECONDS status=124 left=$((session_seconds - SECONDS))
  shift
  if [ "$left" -gt 0 ]; then
    (cd "$work" && timeout --kill-after=10 $((left < stage_seconds ? left : stage_seconds)) "$@") >"$out/$name.log" 2>&1
    status=$?
  else
    echo "no time was left" >"$out/$name.log"
  fi
  echo "$status" >"$out/$name.status"
  [ "$status" -eq 0 ] || failed=$((failed + 1))
  say "$(printf '%-22s %-9s %4ds  %s' "$name" "$([ "$status" -eq 0 ] && echo ok || echo "status $status")" \
    $((SECONDS - start)) "$(tail -n 1 "$out/$name.log" | cut -c1-100)")"
}

# A memx command with --json: the object goes to NAME.json, and what must hold of it is checked.
json_stage() {
  local name=$1 check=$2
  shift 2
  stage "$name" "$python" -c '
import json, subprocess, sys
path, check, *command = sys.argv[1:]
done = subprocess.run([sys.executable, "-m", "memx", *command, "--json"], stdout=subprocess.PIPE, text=True)
open(path, "w").write(done.stdout)
answer = json.loads(done.stdout or "{}")
plain = [{k: v for k, v in one.items() if not isinstance(v, (list, dict))} for one in (answer, *answer.get("results", []))]
print(*map(json.dumps, plain), sep="\n")
assert done.returncode == 0, f"status {done.returncode}"
assert eval(check, {"answer": answer}), check
told = {k: v for one in plain for k, v in one.items()}
kinds = ("device", "mismatches", "migrated_in_bytes", "migrated_out_bytes", "peak_host_bytes", "wall_s", "driver_version")
print(", ".join(f"{kind} {told[kind]}" for kind in kinds if kind in told))
' "$out/$name.json" "$check" "$@"
}

run_pytest() {
  local name=$1
  shift
  stage "$name" env "PYTHONPATH=$PYTHONPATH" "$python" -m pytest -c "$root/pyproject.toml" --rootdir "$root" \
    -p no:cacheprovider -q -o junit_family=xunit1 --junitxml "$out/$name.xml" "$@"
}

: >"$out/summary.txt"
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || [ -e /dev/nvmap ]; then
  say "memx on a GPU: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)"
  simulate=()
  on_device=()
  limits=(--device-limit 1426MiB --host-limit 6GiB)
else
  say "memx: there is no GPU here; everything below is simulated"
  simulate=(--simulate)
  on_device=(MEMX_SIMULATE=memory=1GiB,host_memory=4GiB,page=64KiB)
  limits=(--device-limit 23MiB --host-limit 1GiB --scale 1/64 --page 64KiB)
fi
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1

stage environment bash -c '
uname -a; nproc; free -m; nvidia-smi; "$0" -VV; "$0" -m pip list --disable-pip-version-check 2>/dev/null; true' "$python"
stage build "$python" -m pip install --no-index --no-build-isolation --no-deps --disable-pip-version-check \
  --target "$site" --config-settings "build-dir=$work/build" "$root"
json_stage doctor 'answer["devices"][0]["usable"]' doctor "${simulate[@]}"

for variable in "${on_device[@]}"; do export "${variable?}"; done
run_pytest conformance "$root/tests/conformance" -m gpu
mapfile -t gpu_tests < <(grep -rl 'mark\.gpu' --include='test_*.py' "$root/tests" | grep -v /conformance/)
run_pytest gpu_tests "${gpu_tests[@]}" -m gpu
unset MEMX_SIMULATE

stage driver_costs "$python" "$root/benchmarks/driver_costs.py" --output "$out/driver_costs.json"

if "$python" -c 'import torch' 2>/dev/null; then
  stage training "$python" "$root/benchmarks/gpu_training.py" --output "$out/training.json"
  if [ ${#simulate[@]} -eq 0 ]; then
    stage estimate "$python" "$root/benchmarks/estimate.py" --gpu --output "$out/estimate.md" \
      "GPT-2 small, 4x512, AdamW" "ResNet-50, batch 32, SGD"
  fi
fi

moved='answer["mismatches"] == 0 and not answer["races"] and answer["migrated_out_bytes"] > 0'
json_stage demo "$moved" demo --no-picture "${simulate[@]}"
trace=$site/memx/data/resnet50_b32_sgd.jsonl.gz
right='all(r["ok"] and r["mismatches"] == 0 and not r["races"] for r in answer["results"])'
spilt=$right' and answer["results"][0]["peak_host_bytes"] > 0'
moved=$right' and answer["results"][0]["migrated_in_bytes"] > 0'
json_stage replay_eager "$spilt" replay "$trace" "${limits[@]}" --eager "${simulate[@]}"
json_stage replay_lazy "$moved" replay "$trace" "${limits[@]}" --lazy "${simulate[@]}"
json_stage replay_lazy_mutual "$moved" replay "$trace" "${limits[@]}" --lazy --reuse mutual "${simulate[@]}"

# Where a GPU answers otherwise than the simulation: a report, not a failure.
run_pytest conformance_simulated "$root/tests/conformance"
stage differences "$python" "$root/tests/conformance/compare.py" \
  "$out/conformance_simulated.xml" "$out/conformance.xml"

say "$failed stages failed, after ${SECONDS}s"
tar -C "$out" --exclude session.tar.gz -czf "$work/session.tar.gz" . && mv "$work/session.tar.gz" "$out/"
exit "$failed"
